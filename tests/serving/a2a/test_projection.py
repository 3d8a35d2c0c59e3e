"""The task of a run, as it is built from events and streamed text."""

from a2a.types import a2a_pb2 as pb

from baton.events import AgentResponded, Origin
from baton.messages import AssistantMessage
from baton.serving.a2a.projection import TaskProjection

ORIGIN = Origin("1", "A")


def test_text_of_a_discarded_response_is_replaced() -> None:
    # F33: the text of a second attempt was appended to that of the first.
    projection = TaskProjection("t", "c")
    first = projection.apply_text(ORIGIN, "Goo")
    projection.discard_text(ORIGIN)
    second, third = projection.apply_text(ORIGIN, "Hel"), projection.apply_text(ORIGIN, "lo")
    assert first is not None
    assert second is not None
    assert third is not None
    assert [update.append for update in (first, second, third)] == [False, False, True]
    assert projection.task.artifacts[0].parts[0].text == "Hello"


def test_a_response_after_discarded_text_is_sent_whole() -> None:
    # F33
    projection = TaskProjection("t", "c")
    projection.apply_text(ORIGIN, "Goo")
    projection.discard_text(ORIGIN)
    (update,) = projection.apply(AgentResponded("1/m1", ORIGIN, 0.0, AssistantMessage("Hello")))
    assert isinstance(update, pb.TaskArtifactUpdateEvent)
    assert (update.append, update.artifact.parts[0].text) == (False, "Hello")
    projection.discard_text(ORIGIN)
    assert projection.task.artifacts[0].parts[0].text == "Hello"
