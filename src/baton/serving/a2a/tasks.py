"""Tasks as runs: begun, followed up, listened to and cancelled, wherever they are driven.

What a follow-up on a paused task answers, and to which of its open questions.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from time import monotonic
from typing import Any, cast
from uuid import uuid4

from a2a.types.a2a_pb2 import Message, Part, Task, TaskState
from a2a.utils.errors import InvalidParamsError, TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError
from google.protobuf.json_format import MessageToDict

from ...a2a.parts import content_of, plain_value
from ...errors import AnswerError, RunConflictError, RunError, ThreadBusyError, quote_names
from ...events import InterruptRaised
from ...messages import UserMessage
from ...runner import BackgroundRunner
from ...stores import RunRecord, Store
from ..http import Principal
from .broadcast import TaskBroadcast, TaskBroadcasts, TaskSubscriber, copied, told
from .projection import ABOUT, TaskProjection, Update, can_be_context, context_of, parallel_thread, thread_of, told_from
from .push import PushConfigStore, PushSubscriber

_YES = frozenset({"yes", "y", "true", "ok", "approve", "approved"})
_NO = frozenset({"no", "n", "false", "reject", "rejected", "deny", "denied"})


def answers_of(parts: Iterable[Part], questions: Mapping[str, InterruptRaised]) -> dict[str, Any]:
    """The answers by the ids of the questions: as data parts give them, or the text if only one is open.

    Files are no answer by themselves: with them, it is `{"text": …, "files": […]}`, each file as A2A has it in JSON.
    """
    answers: dict[str, Any] = {}
    texts: list[str] = []
    others: list[Any] = []
    files: list[Any] = []
    for part in parts:
        kind = part.WhichOneof("content")
        if kind == "text":
            texts.append(part.text)
        elif kind in ("raw", "url"):
            files.append(MessageToDict(part))
        elif kind == "data":
            given = plain_value(part.data)
            found = _by_id(given, questions)
            answers.update(found)
            if not found:
                others.append(given)
    if answers:
        return answers
    # Ids are settled now: if the task has gone on meanwhile, this must not answer a question that came later.
    id = _only(questions)
    if files:
        return {id: {"text": "\n".join(texts), "files": files, **({"data": others[0]} if others else {})}}
    if others:
        return {id: others[0]}
    return {id: _as_wanted("\n".join(texts), questions[id])}


def _by_id(given: Any, questions: Mapping[str, InterruptRaised]) -> dict[str, Any]:
    if not isinstance(given, dict):
        return {}
    facts = cast("dict[str, Any]", given)
    if "interruptId" in facts:
        id = str(facts["interruptId"])
        if id not in questions:
            raise InvalidParamsError(
                message=f"no open question is called `{id}`; open are: {quote_names([*questions])}"
            )
        return {id: facts.get("answer")}
    return facts if facts and all(id in questions for id in facts) else {}


def _only(questions: Mapping[str, InterruptRaised]) -> str:
    if len(questions) != 1:
        raise InvalidParamsError(
            message=f"open questions are: {quote_names([*questions])}; "
            'answer each with a data part {"interruptId": …, "answer": …}'
        )
    return next(iter(questions))


def _as_wanted(text: str, asked: InterruptRaised) -> Any:
    """Words as the answer that the question wants: a yes or a no, or JSON, where plain text would not do."""
    payload: Any = asked.payload
    kind = cast("dict[str, Any]", payload).get("kind") if isinstance(payload, dict) else None
    if kind == "approval" and text.strip().lower() in _YES | _NO:
        return text.strip().lower() in _YES
    wants_text = asked.schema is None or asked.schema.get("type") == "string"
    if kind != "approval" and wants_text:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


_logger = logging.getLogger("baton.a2a")
_LONGEST_CANCEL = 20.0
_PAUSE = 0.3


class TaskService:
    """The runs of one hub, as callers of A2A see them."""

    def __init__(self, hub: BackgroundRunner, relays: TaskBroadcasts, *, may_be_messages: bool = False) -> None:
        """`may_be_messages` is whether a stream waits for what an agent does first: it may want no task."""
        self.hub = hub
        self._may_be_messages = may_be_messages
        self.relays = relays
        self.store: Store = hub.runner._require_store("serve_a2a")
        self._configs = PushConfigStore(self.store)
        hub._recovery.on_recovered.append(self.pass_on)

    async def record(self, task_id: str, caller: Principal) -> RunRecord:
        """What is known about a task. Raises TaskNotFoundError if there is none that this caller may see."""
        is_askable = bool(task_id) and "\0" not in task_id
        record = await self.store.record(task_id) if is_askable else None
        if record is None or not caller.sees(record.owner):
            raise TaskNotFoundError(message=f"there is no task `{task_id}`")
        return record

    async def get(self, task_id: str, caller: Principal) -> Task:
        """A task as it stands, with what is being said in it if it is under way here."""
        record = await self.record(task_id, caller)
        relay = self.relays.get(task_id)
        if relay is not None and relay.begun.is_set():
            return copied(relay.telling)
        return (await told_from(self.store, record)).task

    async def answer(self, task_id: str, caller: Principal) -> Task | Message:
        """What a task has come to, for whoever has waited for it: the task, or a message if the agent wants that."""
        return _come_to(await told_from(self.store, await self.record(task_id, caller)))

    async def check(self, message: Message, caller: Principal) -> None:
        """Raise what a message is refused with, before anything is written because of it."""
        if message.task_id:
            _, telling = await self._waiting(message, caller)
            answers_of(message.parts, telling.questions)
        elif not can_be_context(message.context_id):
            raise InvalidParamsError(message=f"`{message.context_id}` cannot be the id of a context")

    async def begin(
        self,
        message: Message,
        caller: Principal,
        task_id: str,
        *,
        ear: TaskSubscriber | None,
        push: PushSubscriber | None,
    ) -> TaskBroadcast:
        """A new task, in the conversation that the message names or in a new one; an ear hears all of it."""
        context_id = message.context_id or str(uuid4())
        values = {ABOUT: _about(message, caller)}
        said, thread = UserMessage(content_of(message.parts)), thread_of(caller, context_id)
        try:
            await self.hub.start(said, run_id=task_id, thread=thread, values=values, owner=caller.name)
        except ThreadBusyError:
            # A context may have several tasks at once. This one reads what was said so far, and goes its own way.
            before = await self.hub.runner.thread(thread).messages()
            apart = parallel_thread(thread, task_id)
            told_before = [*before, said]
            await self.hub.start(told_before, run_id=task_id, thread=apart, values=values, owner=caller.name)
        if push is not None:
            # Before anything is passed on: whoever wants to be told is told from the first.
            await self._configs.put(task_id, push)
        return await self._relayed(TaskProjection(task_id, context_id), ear)

    async def follow_up(self, message: Message, caller: Principal, ear: TaskSubscriber | None) -> TaskBroadcast:
        """Go on with a task that waits, with what the message answers; an ear hears what comes of it."""
        record, telling = await self._waiting(message, caller)
        try:
            answers = answers_of(message.parts, telling.questions)
            await self.hub.resume(record.run_id, answers, values={ABOUT: _about(message, caller)})
        except AnswerError as error:
            raise InvalidParamsError(message=str(error)) from None
        except RunConflictError:
            raise UnsupportedOperationError(message=f"task `{record.run_id}` is being answered already") from None
        except RunError as error:
            _logger.info("task `%s` cannot go on: %s", record.run_id, error)
            raise UnsupportedOperationError(message=f"task `{record.run_id}` cannot go on") from None
        return await self._relayed(telling, ear)

    async def _waiting(self, message: Message, caller: Principal) -> tuple[RunRecord, TaskProjection]:
        """The task that a message goes on with. Raises if it waits for none, or belongs elsewhere."""
        record = await self.record(message.task_id, caller)
        if message.context_id and message.context_id != context_of(record):
            raise InvalidParamsError(
                message=f"task `{record.run_id}` belongs to another context than `{message.context_id}`"
            )
        telling = await told_from(self.store, record)
        if telling.is_over:
            raise UnsupportedOperationError(message=f"task `{record.run_id}` has ended; begin another")
        if record.status == "running":
            raise UnsupportedOperationError(
                message=f"task `{record.run_id}` is at work; it takes no message until it asks"
            )
        return record, telling

    async def _relayed(self, telling: TaskProjection, ear: TaskSubscriber | None) -> TaskBroadcast:
        relay = self.relays.begin(telling, ear)
        await relay.begun.wait()
        return relay

    async def until_stopped(self, task_id: str) -> None:
        """Return when a task has ended or waits, wherever it is driven."""
        async for _ in self.hub.subscribe(task_id, after=1 << 40):
            continue

    async def stream(self, relay: TaskBroadcast, ear: TaskSubscriber) -> AsyncGenerator[Update]:
        """A task that has just begun or gone on here: how it stood then, and what its ear hears until it stops.

        If its agent answers with a message, that message and nothing else.
        """
        try:
            if self._may_be_messages:
                await relay.acted.wait()
                if relay.telling.wants_message:
                    async for _ in told(ear):
                        continue
                    yield _come_to(relay.telling)
                    return
            assert relay.opening is not None
            yield relay.opening
            async for update in told(ear):
                yield update
        finally:
            relay.ears.discard(ear)

    async def subscribe(self, task_id: str, caller: Principal) -> AsyncGenerator[Update]:
        """Any task that has not ended: how it stands, and what happens in it until it stops the next time."""
        record = await self.record(task_id, caller)
        relay = self.relays.get(task_id)
        if relay is not None:
            await relay.begun.wait()
        if relay is not None and self.relays.get(task_id) is relay:
            ear = TaskSubscriber()
            try:
                yield relay.snapshot(ear)
                async for update in told(ear):
                    yield update
            finally:
                relay.ears.discard(ear)
            return
        record = await self.record(task_id, caller)
        telling = await told_from(self.store, record)
        if telling.is_over:
            raise UnsupportedOperationError(message=f"task `{task_id}` has ended; there is nothing to subscribe to")
        yield copied(telling)
        if record.status != "running":
            goes_on_here = False
            async for update in self._once_it_goes_on(telling):
                goes_on_here = True
                yield update
            if goes_on_here:
                return
        async for _, event in self.hub.runner.watch(task_id, after=telling.heard):
            for update in telling.hear(event):
                yield update

    async def _once_it_goes_on(self, telling: TaskProjection) -> AsyncGenerator[Update]:
        """Wait for a task that waits. Nothing comes of this if it goes on in another process: that is to be watched."""
        task_id, ear = telling.task.id, TaskSubscriber()
        if self.relays.get(task_id) is not None:
            return
        self.relays.wait(task_id, ear)
        try:
            while True:
                try:
                    update = await ear.next(_PAUSE)
                except TimeoutError:
                    record = await self.store.record(task_id)
                    if record is None or (record.seq - 1 > telling.heard and self.relays.get(task_id) is None):
                        return
                    continue
                if update is None:
                    return
                yield update
        finally:
            self.relays.leave(task_id, ear)

    async def _known(self, task_id: str) -> RunRecord:
        record = await self.store.record(task_id)
        if record is None:
            raise TaskNotFoundError(message=f"there is no task `{task_id}` any more")
        return record

    async def cancel(self, task_id: str, caller: Principal) -> Task:
        """Have a task stopped, wherever it is driven, also if it says nothing at all."""
        record = await self.record(task_id, caller)
        if record.status not in ("running", "suspended"):
            raise TaskNotCancelableError(message=f"task `{task_id}` has ended already")
        latest = monotonic() + _LONGEST_CANCEL
        while (status := await self.hub.cancel(task_id)) in ("running", "suspended"):
            # Its driver is elsewhere and has been told; or it has died, and then its lease runs out.
            if monotonic() > latest:
                raise TaskNotCancelableError(message=f"task `{task_id}` has not stopped yet; try again")
            await asyncio.sleep(_PAUSE)
        if status != "cancelled":
            raise TaskNotCancelableError(message=f"task `{task_id}` ended before it could be stopped")
        telling = await told_from(self.store, await self._known(task_id))
        if record.status == "suspended":
            self.relays.tell_of(telling)
        return telling.task

    async def pass_on(self, record: RunRecord) -> None:
        """Pass on what happens in a task whose driver has died, and that goes on here, from where it was then."""
        self.relays.begin(await told_from(self.store, record))

    async def let_go(self) -> None:
        """Stop all that is driven here, so that others can go on with it."""
        await self.hub.release_all()
        await self.relays.close()


def _come_to(telling: TaskProjection) -> Task | Message:
    is_completed = telling.task.status.state == TaskState.TASK_STATE_COMPLETED
    return telling.as_message() if telling.wants_message and is_completed else telling.task


def _about(message: Message, caller: Principal) -> dict[str, Any]:
    """What the run is told of a message besides its content."""
    about: dict[str, Any] = {"messageId": message.message_id}
    if message.HasField("metadata"):
        about["metadata"] = plain_value(message.metadata)
    if message.extensions:
        about["extensions"] = [*message.extensions]
    if message.reference_task_ids:
        about["referenceTaskIds"] = [*message.reference_task_ids]
    if caller.name:
        about["caller"] = caller.name
    return about
