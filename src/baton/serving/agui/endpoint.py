"""One request: who asks, what for, and the stream that answers.

What a request asks for: a new run of a thread, or that the thread's last run goes on with answers.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, cast

import ag_ui.core as agui
from ag_ui.encoder import EventEncoder
from msgspec import Struct
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...errors import AnswerError, quote_names
from ...events import Delta, Event, InterruptRaised
from ...log import Log
from ...messages import Message, ToolSpec, text_of
from ...runner import BackgroundRunner
from ...stores import RunRecord
from ..http import Principal
from ..http.errors import ServingError, error_response
from ..http.guard import RequestGuard
from ..http.sse import COMMENT, SSEResponse, with_heartbeat
from .frontend import TOOLS
from .messages import as_ours, content_of, new_in, values_in
from .translation import EventTranslator, is_frontend_call

CONTEXT, PROPS = "agui.context", "agui.props"
"""The keys in a run's values under which a request's context and forwarded properties are kept."""

_ID = re.compile(r"[\x21-\x7e]{1,200}")
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_GIVEN_UP = "The user did not carry this call out."


class ResumeRequest(Struct, frozen=True):
    """How a run that waits is to go on. `gives_up` says that somebody will not answer a question of an agent's own."""

    answers: dict[str, Any]
    answered_calls: tuple[str, ...] = ()
    """The calls whose results came as messages."""
    gives_up: bool = False


def read_request(content: bytes) -> agui.RunAgentInput:
    """The request. Raises Problem if it is none."""
    try:
        request = agui.RunAgentInput.model_validate_json(content)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        if problems[0]["type"] == "json_invalid":
            raise ServingError(400, "malformed_json", "the body is not JSON")
        where = ".".join(str(step) for step in problems[0]["loc"])
        raise ServingError(422, "invalid", f"the body does not fit: `{where}`: {problems[0]['msg']}")
    for name, id in (("threadId", request.thread_id), ("runId", request.run_id)):
        if not _ID.fullmatch(id):
            raise ServingError(422, "invalid", f"`{name}` must be 1 to 200 visible ASCII characters")
    return request


def values_of(request: agui.RunAgentInput) -> dict[str, Any]:
    """What a new run begins with: the state, and what else the other side has to offer."""
    values = dict(values_in(request.state))
    if request.tools:
        values[TOOLS] = [_tool(tool) for tool in request.tools]
    if request.context:
        values[CONTEXT] = [{"description": each.description, "value": each.value} for each in request.context]
    if request.forwarded_props:
        values[PROPS] = request.forwarded_props
    return values


def said_in(request: agui.RunAgentInput, *, is_known: bool) -> list[Message]:
    """What a new run is told: what is new, if the thread is known here; everything, if it began elsewhere."""
    messages = as_ours(request.messages)
    return new_in(messages) if is_known else messages


def resumption_of(request: agui.RunAgentInput, questions: dict[str, InterruptRaised]) -> ResumeRequest | None:
    """How a run with these open questions is to go on; None if the request answers none of them."""
    answers: dict[str, Any] = {}
    gives_up = False
    unknown = [entry.interrupt_id for entry in request.resume or () if entry.interrupt_id not in questions]
    if unknown:
        raise AnswerError(f"no open question is called {quote_names(unknown)}; open are: {quote_names([*questions])}")
    for entry in request.resume or ():
        asked = questions[entry.interrupt_id]
        if entry.status == "resolved":
            answers[entry.interrupt_id] = {"content": entry.payload} if is_frontend_call(asked) else entry.payload
        elif is_frontend_call(asked):
            answers[entry.interrupt_id] = {"content": _GIVEN_UP, "is_error": True}
        elif _is_approval(asked):
            answers[entry.interrupt_id] = False
        else:
            gives_up = True
    by_call = {
        asked.tool_call.id: id
        for id, asked in questions.items()
        if asked.tool_call is not None and is_frontend_call(asked)
    }
    results = {by_call[m.tool_call_id]: m for m in _tool_messages(request.messages) if m.tool_call_id in by_call}
    for id, message in results.items():
        content = text_of(content_of(message.content)) or message.error or ""
        answers[id] = {"content": content, "is_error": message.error is not None}
    calls = tuple([message.tool_call_id for message in results.values()])
    return ResumeRequest(answers, calls, gives_up) if answers or gives_up else None


def _tool_messages(messages: Sequence[Any]) -> list[agui.ToolMessage]:
    return [message for message in messages if isinstance(message, agui.ToolMessage)]


def _is_approval(asked: InterruptRaised) -> bool:
    payload: Any = asked.payload
    return isinstance(payload, dict) and cast("dict[str, Any]", payload).get("kind") == "approval"


def _tool(tool: agui.Tool) -> dict[str, Any]:
    if not _TOOL_NAME.fullmatch(tool.name):
        raise ServingError(422, "invalid", "the name of a tool must be 1 to 64 letters, digits, _ or -")
    schema: Any = tool.parameters
    parameters = cast("dict[str, Any]", schema) if isinstance(schema, dict) and schema else ToolSpec("").parameters
    return {"name": tool.name, "description": tool.description, "parameters": parameters}


_Numbered = AsyncGenerator[tuple[int, Event | Delta]]


class AGUIOptions(Struct, frozen=True):
    """What was said when the app was made. `stays` keeps a run going whose request is broken off."""

    context: Callable[[str], Any] | None = None
    heartbeat: float = 15.0
    stays: bool = False
    show_errors: bool = False


class _ActiveRun(Struct, frozen=True):
    """A run that is under way: its id in the store, and how much of it has been told before."""

    run_id: str
    told: int
    answered_calls: tuple[str, ...] = ()


class AGUIEndpoint:
    """Answers requests for runs of one hub."""

    def __init__(self, hub: BackgroundRunner, door: RequestGuard, wishes: AGUIOptions) -> None:
        self._hub = hub
        self._door = door
        self._wishes = wishes
        self._store = hub.runner._require_store("AG-UI")
        self._encoder = EventEncoder()
        self._stopping: set[asyncio.Task[Any]] = set()

    async def answer(self, request: Request) -> Response:
        """The stream of a run, or what is wrong with the request."""
        try:
            caller = await self._door.admit(request)
            wanted = await self._door.body(request, read_request)
            begun = await self._begun(caller, wanted)
            translator = await self._translator(caller, wanted, begun)
        except Exception as error:  # noqa: BLE001 - the edge of the program: here a failure becomes an answer
            return error_response(request, error)
        return SSEResponse(self._frames(begun, translator), on_leave=partial(self._left, begun, translator))

    async def _begun(self, caller: Principal, wanted: agui.RunAgentInput) -> _ActiveRun:
        """Start a run, or have the thread's last one go on if it waits for what the request brings."""
        thread = caller.inside(wanted.thread_id)
        page = await self._store.list(thread=thread, limit=1)
        last = page.records[0] if page.records else None
        if last is not None and last.status == "suspended":
            begun = await self._resumed(caller, wanted, last)
            if begun is not None:
                return begun
        elif wanted.resume:
            raise ServingError(409, "not_waiting", "no run of this thread waits for answers")
        run_id = await self._hub.start(
            said_in(wanted, is_known=last is not None),
            context=self._context(caller),
            values=values_of(wanted),
            run_id=caller.inside(wanted.run_id),
            thread=thread,
            owner=caller.name,
        )
        return _ActiveRun(run_id, 1)

    async def _resumed(self, caller: Principal, wanted: agui.RunAgentInput, last: RunRecord) -> _ActiveRun | None:
        """Have a run that waits go on; None if it is given up, and a new one is to follow it."""
        events = await self._hub.runner.events(last.run_id)
        questions = Log(events).open_interrupts()
        resumption = resumption_of(wanted, questions)
        has_news = bool(said_in(wanted, is_known=True))
        if resumption is None:
            if not has_news or not all(map(is_frontend_call, questions.values())):
                raise ServingError(409, "thread_busy", "the thread's last run waits for answers; send them in `resume`")
            resumption = ResumeRequest({}, gives_up=True)
        if resumption.gives_up:
            await self._hub.cancel(last.run_id)
            return None if has_news else _ActiveRun(last.run_id, len(events))
        await self._hub.resume(last.run_id, resumption.answers, context=self._context(caller))
        return _ActiveRun(last.run_id, len(events), resumption.answered_calls)

    async def _translator(self, caller: Principal, wanted: agui.RunAgentInput, begun: _ActiveRun) -> EventTranslator:
        events = await self._hub.runner.events(begun.run_id)
        return EventTranslator(
            run=caller.outside(begun.run_id),
            thread=wanted.thread_id,
            wire_run=wanted.run_id,
            past=events[: begun.told],
            answered=begun.answered_calls,
            show_errors=self._wishes.show_errors,
        )

    async def _frames(self, begun: _ActiveRun, translator: EventTranslator) -> AsyncIterator[bytes]:
        for told in translator.begin():
            yield self._encoder.encode(told).encode()
        heard = cast(_Numbered, self._hub.subscribe(begun.run_id, after=begun.told))
        async with aclosing(with_heartbeat(heard, self._wishes.heartbeat)) as items:
            async for item in items:
                if item is None:
                    yield COMMENT
                    continue
                for told in translator.hear(item[1]):
                    yield self._encoder.encode(told).encode()
        if not translator.is_over:
            for told in translator.broken():
                yield self._encoder.encode(told).encode()

    def _left(self, begun: _ActiveRun, translator: EventTranslator) -> None:
        """The client has gone: that is how it cancels a run."""
        if not translator.is_over and not self._wishes.stays:
            # The task of the request is being cancelled, and could not wait for anything any more.
            task = asyncio.create_task(self._hub.cancel(begun.run_id))
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)

    def _context(self, caller: Principal) -> Any:
        return None if self._wishes.context is None else self._wishes.context(caller.name)


def routes_of(endpoint: AGUIEndpoint) -> list[Route]:
    """The one path there is, whatever the app is mounted under."""
    return [Route("/{path:path}", endpoint.answer, methods=["POST"])]
