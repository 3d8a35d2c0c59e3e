"""The endpoints for `useChat`: send a message or answers, resume the stream of a run, and stop a run."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from ...handoffs.tasks import TASK_TOOLS
from ...log import Event
from ...log.log import Log
from ...messages import UserMessage
from ...runs.opening import run_started_event
from ...stores import RunRecord
from ..frontend_tools import is_frontend_call
from ..http.application import Endpoints
from ..http.auth import Principal
from ..http.http_errors import ServingError, error_response
from ..http.sse import SSEResponse, encode_frame, iter_frames
from .chat_requests import ChatRequest, check_chat_id, parse_chat_request
from .translation import Chunk, ChunkTranslator

_PROTOCOL = "x-vercel-ai-ui-message-stream"
_DONE = encode_frame("[DONE]")


class _ActiveRun(Struct, frozen=True):
    run_id: str
    past: Sequence[Event] = ()
    """The events that the client's message has."""


@dataclass(eq=False)
class ChatEndpoint(Endpoints):
    """The endpoints of one app."""

    def __post_init__(self) -> None:
        super().__post_init__()
        team = self.background.runner.team
        members = [member for each in (team, *team.inner.values()) for member in each.members.values()]
        self._transfer_tools = {*TASK_TOOLS, *[spec.name for member in members for spec in member.routes.specs]}

    async def handle_send(self, request: Request) -> Response:
        """Start or resume a run, and return its stream."""
        try:
            principal = await self.guard.admit(request)
            body = await self.guard.parse_body(request, parse_chat_request)
            active = await self._start_or_resume(principal, body)
        except Exception as error:  # noqa: BLE001 - every failure becomes a response
            return error_response(request, error)
        return self._stream(principal, active, cancels=True)

    async def handle_resume(self, request: Request) -> Response:
        """Return the stream of the run that is running, from its beginning; 204 if none is."""
        try:
            principal = await self.guard.admit(request)
            last = await self._last_run(principal, check_chat_id(request.path_params["id"]))
        except Exception as error:  # noqa: BLE001 - every failure becomes a response
            return error_response(request, error)
        if last is None or last.status != "running":
            return Response(status_code=204)
        return self._stream(principal, _ActiveRun(last.run_id), cancels=False)

    async def handle_stop(self, request: Request) -> Response:
        """Cancel the unfinished run of a chat, if there is one."""
        try:
            principal = await self.guard.admit(request)
            last = await self._last_run(principal, check_chat_id(request.path_params["id"]))
            if last is not None and last.status in ("running", "suspended"):
                await self.background.cancel(last.run_id)
        except Exception as error:  # noqa: BLE001 - every failure becomes a response
            return error_response(request, error)
        return Response(status_code=204)

    async def _last_run(self, principal: Principal, chat_id: str) -> RunRecord | None:
        page = await self.store.list(thread=principal.to_store_id(chat_id), limit=1)
        return page.records[0] if page.records else None

    async def _start_or_resume(self, principal: Principal, body: ChatRequest) -> _ActiveRun:
        last = await self._last_run(principal, body.id)
        if last is not None and last.status == "suspended":
            active = await self._answer(principal, body, last)
            if active is not None:
                return active
        message = body.user_message()
        if last is not None and await self._is_retry(body, message, last):
            await self.background.resume(last.run_id)
            return _ActiveRun(last.run_id)
        if last is not None and last.status == "running":
            # The user has stopped it and goes on.
            await self.wait_for_cancel(last.run_id)
        run_id = await self.background.start(
            [message],
            values=body.initial_values(),
            thread=principal.to_store_id(body.id),
            owner=principal.name,
        )
        return _ActiveRun(run_id)

    async def _answer(self, principal: Principal, body: ChatRequest, last: RunRecord) -> _ActiveRun | None:
        """Resume a suspended run with answers; None if it was cancelled because the user goes on."""
        past = await self.background.runner.runs.events(last.run_id)
        interrupts = Log(past).open_interrupts()
        public_id = principal.to_public_id(last.run_id)
        if not body.continues(public_id) and all(map(is_frontend_call, interrupts.values())):
            await self.background.cancel(last.run_id)
            return None
        answers = body.parse_answers(public_id, interrupts)
        if not answers or not body.continues(public_id):
            problem = "the chat waits for answers to its questions; send them, or cancel the run: DELETE …/{id}/stream"
            raise ServingError(409, "thread_busy", problem)
        await self.background.resume(last.run_id, answers)
        return _ActiveRun(last.run_id, past if body.has_message(public_id) else ())

    async def _is_retry(self, body: ChatRequest, message: UserMessage, last: RunRecord) -> bool:
        """Return whether the user wants the run that failed or was cancelled to continue."""
        if body.trigger != "regenerate-message" or last.status not in ("failed", "cancelled"):
            return False
        started = run_started_event(await self.background.runner.runs.events(last.run_id))
        return started.input[-1:] == (message,)

    def _stream(self, principal: Principal, active: _ActiveRun, *, cancels: bool) -> Response:
        translator = ChunkTranslator(
            run_id=principal.to_public_id(active.run_id),
            past=active.past,
            transfer_tools=self._transfer_tools,
            show_errors=self.show_errors,
        )

        def disconnected() -> None:
            if cancels and not translator.has_stopped:
                self.abandon(active.run_id)

        response = SSEResponse(
            self._frames(active, translator),
            on_disconnect=disconnected,
            on_shutdown=lambda: _encode(translator.finish()),
        )
        response.headers[_PROTOCOL] = "v1"
        return response

    async def _frames(self, active: _ActiveRun, translator: ChunkTranslator) -> AsyncGenerator[bytes]:
        yield b"".join(_encode([translator.start()]))
        batches = self.background._subscribe_batches(active.run_id, after=len(active.past), silence=self.heartbeat)
        frames = iter_frames(batches, lambda item: _encode(translator.translate(item[1])))
        async with aclosing(frames):
            async for frame in frames:
                yield frame
        yield b"".join([*_encode(translator.finish()), _DONE])


def _encode(chunks: Iterable[Chunk]) -> list[bytes]:
    return [encode_frame(msgspec.json.encode(chunk)) for chunk in chunks]
