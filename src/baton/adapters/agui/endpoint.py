"""One request: who asks, what for, and the stream that answers."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, cast

import ag_ui.core as agui
from ag_ui.encoder import EventEncoder
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...events import Delta, Event
from ...log import Log
from ...runner import BackgroundRunner
from ...stores import RunRecord
from ..http import Principal
from ..http.door import RequestGuard
from ..http.problems import ServingError, error_response
from ..http.sse import COMMENT, SSEResponse, with_heartbeat
from .endings import is_frontend_call
from .requests import ResumeRequest, read_request, resumption_of, said_in, values_of
from .translation import EventTranslator

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
        questions = Log(events).open_questions()
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
