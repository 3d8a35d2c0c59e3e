"""A team as a model: a request starts or resumes a run, and the response shows what the run says."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from time import time
from typing import Any, TypeAlias

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...errors import AnswerError, ShuttingDownError
from ...log import Event
from ...log.events import Interrupt, to_interrupt
from ...log.log import Log
from ...messages import Message, ToolMessage, UserMessage, text_of
from ...stores import RunRecord
from ..frontend_tools import TOOLS, is_frontend_call
from ..http.application import Endpoints
from ..http.auth import Principal
from ..http.http_errors import ServingError
from ..http.message_parts import PartUpdate
from ..http.sse import SSEResponse, iter_frames
from .chat_answers import ChatAnswers
from .completions import CompletionWriter
from .openai_errors import error_response
from .openai_requests import InvalidRequestError, ModelBody, read_tools, trailing
from .responses import METADATA, ResponseWriter
from .turns import Turn, TurnEnd, TurnReader, events_of, failed_outcome, outcome_of

TurnWriter: TypeAlias = CompletionWriter | ResponseWriter
"""Writes a turn in one of OpenAI's formats, as a stream and as one object."""
_NOT_READ = "Your message was not read, because the conversation waits for a decision."


class CollectedTurn(Struct, frozen=True):
    """A turn as one object, and how it ended."""

    body: dict[str, Any]
    outcome: TurnEnd


@dataclass(eq=False, kw_only=True)
class ServedModel(Endpoints):
    """A team that clients know as a model."""

    name: str
    thread_prefix: str
    client_history: bool
    chat_answers: ChatAnswers
    answer_in_chat: bool
    created: int = field(default_factory=lambda: int(time()))

    def describe(self) -> dict[str, Any]:
        """Return the model as OpenAI's object."""
        return {"id": self.name, "object": "model", "created": self.created, "owned_by": "baton"}

    def to_thread(self, principal: Principal, name: str) -> str:
        """Return the thread in the store for a name that a client uses."""
        return principal.to_store_id(self.thread_prefix + name)

    async def start(
        self,
        principal: Principal,
        body: ModelBody,
        messages: Sequence[Message],
        *,
        thread: str,
        run_id: str,
        only_last: bool = False,
    ) -> Turn:
        """Start or resume a run with the messages of a request.

        Args:
            principal: The client.
            body: The request.
            messages: Its messages, without instructions.
            thread: The thread in the store; "" if the messages are the whole conversation.
            run_id: The id of a new run, as the client knows it.
            only_last: Take only the last message for a thread that the store knows, because the thread has the others.
        """
        values: dict[str, Any] = {TOOLS: tools} if (tools := read_tools(body, self.background.runner)) else {}
        if body.metadata:
            values[METADATA] = body.metadata
        turn = await self._resume_with_results(principal, trailing(messages, ToolMessage))
        if turn is not None:
            return turn
        page = await self.store.list(thread=thread, limit=1) if thread else None
        if page is not None and page.records:
            last = page.records[0]
            messages = trailing(messages, UserMessage)[-1 if only_last else 0 :]
            if not messages:
                raise InvalidRequestError("messages", "the last message is the result of a call that is not open")
            if last.status == "suspended":
                turn = await self._answer(principal, last, text_of(messages[-1].content))
                if turn is not None:
                    return turn
        elif not self.client_history and not all(isinstance(message, UserMessage) for message in messages):
            problem = "this server accepts messages of the user only; to continue a conversation, name its thread"
            raise ServingError(403, "history_not_allowed", problem)
        started = await self.background.start(
            messages,
            values=values,
            run_id=principal.to_store_id(run_id),
            thread=thread or None,
            owner=principal.name,
        )
        return self.turn(principal, started, has_thread=bool(thread))

    def turn(
        self, principal: Principal, run_id: str, seen: int = 0, *, has_thread: bool, repeats_because: str = ""
    ) -> Turn:
        """Return the turn of a run after some events."""
        in_chat = self.answer_in_chat and has_thread

        def ask(interrupts: Sequence[Interrupt]) -> str:
            return f"{repeats_because}\n\n{self.chat_answers.ask(interrupts, in_chat=in_chat)}".strip()

        return Turn(
            run_id=run_id,
            public_id=principal.to_public_id(run_id),
            seen=seen,
            ask=ask,
            is_stopped=bool(repeats_because),
        )

    async def _resume_with_results(self, principal: Principal, results: Sequence[ToolMessage]) -> Turn | None:
        """Resume the run whose calls the client has executed; None if there is none."""
        by_id = {result.tool_call_id: result for result in results}
        for run_id in {id.rpartition("@")[2]: None for id in by_id}:
            record = await self.store.record(principal.to_store_id(run_id)) if run_id.isprintable() else None
            if record is None or not principal.sees(record.owner) or record.status != "suspended":
                continue
            log = await self.background.runner.runs.events(record.run_id)
            answers: dict[str, Any] = {}
            for id, raised in Log(log).open_interrupts().items():
                result = by_id.get(f"{raised.tool_call.id}@{run_id}") if raised.tool_call is not None else None
                if result is not None and is_frontend_call(raised):
                    answers[id] = {"content": text_of(result.content), "is_error": result.is_error}
            if answers:
                await self.background.resume(record.run_id, answers)
                return self.turn(principal, record.run_id, len(log), has_thread=bool(record.thread))
        return None

    async def _answer(self, principal: Principal, last: RunRecord, text: str) -> Turn | None:
        """Answer the question of a suspended run, or ask again; None if a new run replaces it."""
        log = await self.background.runner.runs.events(last.run_id)
        interrupts = [to_interrupt(raised) for raised in Log(log).open_interrupts().values()]
        question = next((interrupt for interrupt in interrupts if not is_frontend_call(interrupt)), None)
        if question is None:
            # The user has moved on and does not want the results of the client's tools.
            await self.background.cancel(last.run_id)
            return None
        turn = partial(self.turn, principal, last.run_id, len(log), has_thread=True)
        if not self.answer_in_chat:
            return turn(repeats_because=_NOT_READ)
        try:
            await self.background.resume(last.run_id, {question.id: self.chat_answers.parse(question, text)})
        except AnswerError as error:
            return turn(repeats_because=str(error))
        return turn()

    async def respond(self, request: Request, turn: Turn, writer: TurnWriter, *, stream: bool) -> Response:
        """Return the response for a turn; a client that disconnects abandons the run."""
        if not stream:
            await self._wait(request, turn)
            collected = self.collect(turn, writer, await self.events(turn))
            error = collected.outcome.error
            return JSONResponse(collected.body) if error is None else error_response(error)
        reader = TurnReader(turn, (await self.events(turn))[: turn.seen])
        shutdown = failed_outcome(ShuttingDownError(turn.run_id))
        return SSEResponse(
            self._frames(turn, reader, writer),
            on_disconnect=lambda: None if reader.has_stopped else self.abandon(turn.run_id),
            on_shutdown=lambda: writer.finish(shutdown),
        )

    async def events(self, turn: Turn) -> Sequence[Event]:
        """Read the log of a turn's run."""
        return await self.background.runner.runs.events(turn.run_id)

    def collect(self, turn: Turn, writer: TurnWriter, log: Sequence[Event]) -> CollectedTurn:
        """Write a turn as one object, as far as the log of its run has got."""
        log = events_of(turn, log)
        reader = TurnReader(turn, log[: turn.seen])
        for event in log[turn.seen :]:
            _write(writer, reader.read(event))
        _write(writer, reader.finish(log))
        outcome = outcome_of(turn, log, show_errors=self.show_errors)
        return CollectedTurn(writer.body(outcome), outcome)

    async def _frames(self, turn: Turn, reader: TurnReader, writer: TurnWriter) -> AsyncGenerator[bytes]:
        yield b"".join(writer.start())
        try:
            if not reader.has_stopped:
                batches = self.background._subscribe_batches(turn.run_id, after=turn.seen, silence=self.heartbeat)
                async with aclosing(iter_frames(batches, lambda item: _write(writer, reader.read(item[1])))) as frames:
                    async for frame in frames:
                        yield frame
            log = events_of(turn, await self.events(turn))
            yield b"".join(_write(writer, reader.finish(log)))
            outcome = outcome_of(turn, log, show_errors=self.show_errors)
        except Exception as error:  # noqa: BLE001 - the response has started: report the error in the stream
            outcome = failed_outcome(error)
        yield b"".join(writer.finish(outcome))

    async def _wait(self, request: Request, turn: Turn) -> None:
        """Wait until the run stops; a client that disconnects abandons it."""
        if turn.is_stopped:
            return

        async def abandon_on_disconnect() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            self.abandon(turn.run_id)

        listening = asyncio.create_task(abandon_on_disconnect())
        try:
            async for _ in self.background.subscribe(turn.run_id, after=turn.seen):
                pass
        finally:
            listening.cancel()


def _write(writer: TurnWriter, updates: Iterable[PartUpdate]) -> list[bytes]:
    return [frame for update in updates for frame in writer.update(update)]
