"""The AG-UI endpoint: a request starts or resumes a run of a thread, and the response streams its events."""

import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, cast, get_args

import ag_ui.core as agui
from ag_ui.encoder import EventEncoder
from msgspec import Struct
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from ...errors import RunNotFoundError, SetupError
from ...log import InterruptRaised
from ...log.events import payload_fields
from ...log.log import Log
from ...messages import Message, text_of
from ...runs.ids import check_run_id
from ...runs.run_args import WhenBusy
from ...stores import FINISHED_STATUSES, RunRecord, iter_records
from ..frontend_tools import TOOLS, frontend_tool, is_frontend_call
from ..http.application import Endpoints
from ..http.auth import Principal
from ..http.http_errors import ServingError, check_interrupt_ids, error_response
from ..http.sse import SSEResponse, iter_frames
from .agui_messages import (
    from_agui_content,
    from_agui_messages,
    new_user_messages,
    sent_messages,
    state_values,
    unread_messages,
)
from .translation import EventTranslator

CONTEXT = "agui.context"
PROPS = "agui.props"
"""Keys of a run's values that hold a request's context and forwarded properties."""
WHEN_BUSY = "whenBusy"
"""The forwarded property that decides about a message for a thread with an unfinished run."""

_ID = re.compile(r"[\x21-\x7e]{1,200}")
_NOT_EXECUTED = "The user did not execute this call."


class ResumeRequest(Struct, frozen=True):
    """The answers that a request has for a suspended run."""

    answers: dict[str, Any]
    """Answers by interrupt id."""
    answered_calls: tuple[str, ...] = ()
    """Ids of the calls whose results were sent as messages."""
    abandons: bool = False
    """True if the user declined to answer an interrupt, so that the run is cancelled."""


def parse_request(content: bytes) -> agui.RunAgentInput:
    """Parse a request body.

    Raises:
        ServingError: The body is not an AG-UI request.
        InvalidIdError: The id of the run has characters that are not allowed.
    """
    try:
        request = agui.RunAgentInput.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise ServingError(400, "malformed_json", "the body is not JSON")
        where = ".".join(str(step) for step in first["loc"])
        raise ServingError(422, "invalid", f"invalid body: `{where}`: {first['msg']}")
    for name, id in (("threadId", request.thread_id), ("runId", request.run_id)):
        if not _ID.fullmatch(id):
            raise ServingError(422, "invalid", f"`{name}` must be 1 to 200 visible ASCII characters")
    check_run_id(request.run_id, "`runId`")
    return request


def initial_values(request: agui.RunAgentInput) -> dict[str, Any]:
    """Return the initial values of a run: state, frontend tools, context and properties."""
    values = dict(state_values(request.state))
    if request.tools:
        values[TOOLS] = [_tool(tool) for tool in request.tools]
    if request.context:
        values[CONTEXT] = [{"description": item.description, "value": item.value} for item in request.context]
    if request.forwarded_props:
        values[PROPS] = request.forwarded_props
    return values


def requested_mode(request: agui.RunAgentInput, default: WhenBusy) -> WhenBusy:
    """Return what a request wants to happen if the thread has an unfinished run.

    Raises:
        ServingError: The request names an unknown mode.
    """
    mode = payload_fields(request.forwarded_props).get(WHEN_BUSY, default)
    if mode not in get_args(WhenBusy):
        works = ", ".join(get_args(WhenBusy))
        raise ServingError(422, "invalid", f"`forwardedProps.{WHEN_BUSY}` must be one of: {works}")
    return cast("WhenBusy", mode)


def input_messages(request: agui.RunAgentInput, *, with_history: bool = False) -> list[Message]:
    """Return what the user added at the end or, with history, the whole conversation."""
    messages = from_agui_messages(request.messages)
    return messages if with_history else new_user_messages(messages)


def parse_answers(request: agui.RunAgentInput, interrupts: dict[str, InterruptRaised]) -> ResumeRequest | None:
    """Return the answers in a request, or None if it answers no open interrupt.

    Raises:
        AnswerError: The request answers an interrupt that is not open.
    """
    answers: dict[str, Any] = {}
    abandons = False
    check_interrupt_ids([entry.interrupt_id for entry in request.resume or ()], interrupts)
    for entry in request.resume or ():
        interrupt = interrupts[entry.interrupt_id]
        if entry.status == "resolved":
            answers[entry.interrupt_id] = {"content": entry.payload} if is_frontend_call(interrupt) else entry.payload
        elif is_frontend_call(interrupt):
            answers[entry.interrupt_id] = {"content": _NOT_EXECUTED, "is_error": True}
        elif payload_fields(interrupt.payload).get("kind") == "approval":
            answers[entry.interrupt_id] = False
        else:
            abandons = True
    results = _frontend_results(request.messages, interrupts)
    for id, message in results.items():
        content = text_of(from_agui_content(message.content)) or message.error or ""
        answers[id] = {"content": content, "is_error": message.error is not None}
    calls = tuple([message.tool_call_id for message in results.values()])
    return ResumeRequest(answers, calls, abandons) if answers or abandons else None


def _frontend_results(
    messages: Iterable[Any], interrupts: Mapping[str, InterruptRaised]
) -> dict[str, agui.ToolMessage]:
    """Return the results of open calls of frontend tools, by interrupt id."""
    ids = {
        interrupt.tool_call.id: id
        for id, interrupt in interrupts.items()
        if interrupt.tool_call is not None and is_frontend_call(interrupt)
    }
    results = [message for message in messages if isinstance(message, agui.ToolMessage)]
    return {ids[message.tool_call_id]: message for message in results if message.tool_call_id in ids}


def _tool(tool: agui.Tool) -> dict[str, Any]:
    try:
        return frontend_tool(tool.name, tool.description, tool.parameters)
    except SetupError as error:
        raise ServingError(422, "invalid", str(error)) from None


class _ActiveRun(Struct, frozen=True):
    run_id: str
    seen: int
    """The number of events that precede this request; 0 if it starts the run."""
    answered_calls: tuple[str, ...] = ()


_ENCODER = EventEncoder()


@dataclass(eq=False)
class AGUIEndpoint(Endpoints):
    """The endpoint of one AG-UI app."""

    when_busy: WhenBusy = "error"
    client_history: bool = False

    async def handle(self, request: Request) -> Response:
        """Return the event stream of a run, or an error response."""
        try:
            principal = await self.guard.admit(request)
            body = await self.guard.parse_body(request, parse_request)
            active = await self._start_or_resume(principal, body)
            translator = await self._translator(principal, body, active)
        except Exception as error:  # noqa: BLE001 - every failure becomes a response
            return error_response(request, error)
        return SSEResponse(
            self._frames(active, translator),
            on_disconnect=partial(self._disconnected, active, translator),
            on_shutdown=lambda: _encode(translator.abort()) if not translator.is_finished else (),
        )

    async def _start_or_resume(self, principal: Principal, body: agui.RunAgentInput) -> _ActiveRun:
        thread = principal.to_store_id(body.thread_id)
        mode = requested_mode(body, self.when_busy)
        page = await self.store.list(thread=thread, limit=1)
        last = page.records[0] if page.records else None
        if last is not None and last.status == "suspended":
            active = await self._resume(principal, body, last, mode)
            if active is not None:
                return active
        elif body.resume:
            raise ServingError(409, "not_suspended", "no run of this thread is suspended")
        run_id = await self.background.start(
            await self._new_messages(body, last, mode),
            values=initial_values(body),
            run_id=principal.to_store_id(body.run_id),
            thread=thread,
            owner=principal.name,
            when_busy=mode,
        )
        return _ActiveRun(run_id, 0)

    async def _new_messages(
        self, body: agui.RunAgentInput, last: RunRecord | None, mode: WhenBusy
    ) -> Sequence[Message]:
        """Return the messages of a request that its thread does not have."""
        if last is None:
            return input_messages(body, with_history=self.client_history)
        messages = input_messages(body)
        if mode != "error" and last.status not in FINISHED_STATUSES:
            # The client has no answer yet to the messages before it, which the unfinished run has.
            return messages[-1:]
        if len(messages) > 1:
            return unread_messages(messages, await self._received(last.thread, len(messages) - 1))
        return messages

    async def _received(self, thread: str, count: int) -> Sequence[Message]:
        """Return what the user has sent since the last answer, also what a guardrail withheld."""
        received: list[Message] = []
        async for record in iter_records(self.store, thread=thread, limit=count):
            if record.status == "completed" or len(received) >= count:
                break
            events = await self.background.runner.runs.events(record.run_id)
            received[:0] = sent_messages(events)
        return received

    async def _resume(
        self, principal: Principal, body: agui.RunAgentInput, last: RunRecord, mode: WhenBusy
    ) -> _ActiveRun | None:
        """Resume a suspended run; None if the request starts a new one.

        That is so if the suspended run was cancelled, or if the message waits for it.
        """
        events = await self.background.runner.runs.events(last.run_id)
        interrupts = Log(events).open_interrupts()
        answers = parse_answers(body, interrupts)
        has_input = bool(input_messages(body))
        if answers is None:
            if has_input and mode != "error":
                return None
            if not has_input or not all(map(is_frontend_call, interrupts.values())):
                raise ServingError(409, "thread_busy", "the thread's last run is suspended; send answers in `resume`")
            answers = ResumeRequest({}, abandons=True)
        if answers.abandons:
            await self.background.cancel(last.run_id)
            return None if has_input else _ActiveRun(last.run_id, len(events))
        await self.background.resume(last.run_id, answers.answers)
        return _ActiveRun(last.run_id, len(events), answers.answered_calls)

    async def _translator(self, principal: Principal, body: agui.RunAgentInput, active: _ActiveRun) -> EventTranslator:
        events = await self.background.runner.runs.events(active.run_id) if active.seen else []
        return EventTranslator(
            run_id=principal.to_public_id(active.run_id),
            thread_id=body.thread_id,
            request_run_id=body.run_id,
            past=events[: active.seen],
            answered=active.answered_calls,
            show_errors=self.show_errors,
        )

    async def _frames(self, active: _ActiveRun, translator: EventTranslator) -> AsyncGenerator[bytes]:
        yield b"".join(_encode(translator.start()))
        batches = self.background._subscribe_batches(active.run_id, after=active.seen, silence=self.heartbeat)
        frames = iter_frames(batches, lambda item: _encode(translator.translate(item[1])))
        try:
            async with aclosing(frames):
                async for frame in frames:
                    yield frame
        except RunNotFoundError:
            if active.seen:
                raise
            # The message steered the unfinished run, whose stream has it and the answer.
            yield b"".join(_encode(translator.finish_without_run()))
        if not translator.is_finished:
            yield b"".join(_encode(translator.abort()))

    def _disconnected(self, active: _ActiveRun, translator: EventTranslator) -> None:
        if not translator.is_finished:
            self.abandon(active.run_id)


def _encode(events: Iterator[Any]) -> Iterator[bytes]:
    return (_ENCODER.encode(event).encode() for event in events)
