"""The task of a run, as it is built from events and streamed text."""

from a2a.types import a2a_pb2 as pb
from google.protobuf import json_format

from batonkit.log import (
    AgentResponded,
    OpenTask,
    Origin,
    RunCompleted,
    RunStarted,
    TaskEnded,
    TaskOpened,
    UserMessageAdded,
)
from batonkit.log.event import RUN_ORIGIN
from batonkit.messages import AssistantMessage, UserMessage
from batonkit.serve.a2a.projection import TaskProjection

ORIGIN = Origin("1", "A")


def test_text_of_a_discarded_response_is_replaced() -> None:
    # The text of a second attempt was appended to that of the first.
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
    projection = TaskProjection("t", "c")
    projection.apply_text(ORIGIN, "Goo")
    projection.discard_text(ORIGIN)
    (update,) = projection.apply(AgentResponded("1/m1", ORIGIN, 0.0, AssistantMessage("Hello")))
    assert isinstance(update, pb.TaskArtifactUpdateEvent)
    assert (update.append, update.artifact.parts[0].text) == (False, "Hello")
    projection.discard_text(ORIGIN)
    assert projection.task.artifacts[0].parts[0].text == "Hello"


def test_open_tasks_are_in_the_metadata_of_a_completed_run() -> None:
    projection = TaskProjection("t", "c")
    outer, inner = OpenTask("1/task", "B", "A", "A", run_id="r0"), OpenTask("1/task", "C", "B", "B")
    projection.apply(RunStarted("run", RUN_ORIGIN, 0.0, "r1", "B", tasks=(outer,)))
    (opened,) = projection.apply(TaskOpened("1/task", ORIGIN, 0.0, inner))
    assert isinstance(opened, pb.TaskStatusUpdateEvent)
    assert (opened.metadata["event"], opened.metadata["target"]) == ("TaskOpened", "C")
    # The tasks of nested flows have ended by then.
    projection.apply(TaskOpened("1/0/1/task", Origin("1/0/1", "X"), 0.0, OpenTask("1/0/1/task", "Y", "X", "X")))
    (ended,) = projection.apply(TaskEnded("2/task2", ORIGIN, 0.0, inner, "finished", "done"))
    assert isinstance(ended, pb.TaskStatusUpdateEvent)
    assert (ended.metadata["target"], ended.metadata["outcome"]) == ("B", "finished")
    (completed,) = projection.apply(RunCompleted("completed", RUN_ORIGIN, 0.0))
    assert isinstance(completed, pb.TaskStatusUpdateEvent)
    assert json_format.MessageToDict(completed.metadata) == {"openTasks": ["B"]}


def test_a_message_that_steers_the_run_is_in_the_history() -> None:
    projection = TaskProjection("t", "c")
    projection.apply(RunStarted("run", RUN_ORIGIN, 0.0, "t", "A", (UserMessage("hello"),)))
    (update,) = projection.apply(UserMessageAdded("1/m2/user1", ORIGIN, 0.0, UserMessage("louder"), message_id="m"))
    assert isinstance(update, pb.TaskStatusUpdateEvent)
    assert (update.status.state, update.metadata["event"]) == (pb.TASK_STATE_WORKING, "UserMessageAdded")
    said = [(message.role, message.parts[0].text) for message in projection.task.history]
    assert said == [(pb.ROLE_USER, "hello"), (pb.ROLE_USER, "louder")]
    assert len({message.message_id for message in projection.task.history}) == 2
