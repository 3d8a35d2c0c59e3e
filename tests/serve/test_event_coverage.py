"""Every reader of events has a case for every event and delta class."""

from typing import Any

import msgspec
import pytest

from batonkit.log import Delta, Event, EventRef, OpenTask, Origin, TaskOutcome, UnknownEvent
from batonkit.messages import AssistantMessage, UserMessage
from batonkit.serve import Principal
from batonkit.serve.a2a.broadcast import TaskBroadcast
from batonkit.serve.a2a.projection import TaskProjection
from batonkit.serve.agui.translation import EventTranslator
from batonkit.serve.ai_sdk.translation import ChunkTranslator
from batonkit.serve.api.openapi import openapi_document
from batonkit.serve.api.run_schemas import encode_public_event

ORIGIN = Origin("1", "A")
FIELDS: dict[Any, Any] = {
    str: "x",
    int: 0,
    float: 0.0,
    Origin: ORIGIN,
    AssistantMessage: AssistantMessage("x"),
    UserMessage: UserMessage("x"),
    EventRef: EventRef("r", "1/m1"),
    msgspec.Raw: msgspec.Raw(b"{}"),
    OpenTask: OpenTask("1/task", "B", "A", "A"),
    TaskOutcome: "finished",
}
EVENTS: list[Any] = [kind for kind in Event.__subclasses__() if kind.__module__ == "batonkit.log.events"]
DELTAS: list[Any] = [kind for kind in Delta.__subclasses__() if kind.__module__ == "batonkit.log.events"]


def _make(kind: Any) -> Any:
    fields = msgspec.structs.fields(kind)
    return kind(**{field.name: FIELDS[field.type] for field in fields if field.required})


@pytest.mark.parametrize("kind", EVENTS)
def test_a2a_projects_every_event(kind: Any) -> None:
    TaskProjection("t", "c").apply(_make(kind))


@pytest.mark.parametrize("kind", DELTAS)
async def test_a2a_handles_every_delta(kind: Any) -> None:
    background: Any = None
    broadcast = TaskBroadcast(background, TaskProjection("t", "c"), lambda update: None)
    broadcast._handle_delta(_make(kind))
    broadcast._flush()


@pytest.mark.parametrize("kind", [*EVENTS, *DELTAS])
def test_agui_translates_every_event_and_delta(kind: Any) -> None:
    translator = EventTranslator(run_id="r", thread_id="t", request_run_id="r", past=(), answered=(), show_errors=False)
    list(translator.translate(_make(kind)))


@pytest.mark.parametrize("kind", [*EVENTS, *DELTAS])
def test_the_ai_sdk_translates_every_event_and_delta(kind: Any) -> None:
    translator = ChunkTranslator(run_id="r", past=(), transfer_tools=(), show_errors=False)
    list(translator.translate(_make(kind)))


@pytest.mark.parametrize("kind", [*EVENTS, *DELTAS])
def test_the_api_encodes_every_event_and_delta(kind: Any) -> None:
    assert encode_public_event(_make(kind), Principal(), show_errors=False)


def test_the_openapi_document_describes_every_event() -> None:
    refs = [each["$ref"].rpartition("/")[2] for each in openapi_document()["components"]["schemas"]["Event"]["oneOf"]]
    assert sorted(refs) == sorted(kind.__name__ for kind in EVENTS if kind is not UnknownEvent)
