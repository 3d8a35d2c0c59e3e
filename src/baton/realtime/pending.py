"""Which response is under way, and whether another is owed: one at a time, and none while the user speaks.

Which calls were made in a live conversation: an id is good for one call, however often it comes.

Questions that are open in a live conversation, and whoever waits for the answers.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ..context.run_context import SuspendRun
from ..errors import BatonError
from ..messages import AssistantMessage, ToolCall
from .protocol import (
    CancelResponse,
    Command,
    ConfigureSession,
    CreateResponse,
    ProviderErrorReceived,
    ResponseEnded,
    ResponseStarted,
)
from .settings import RealtimeSettings, SessionConfig

_BUSY = "conversation_already_has_active_response"
_ASK_AGAIN_AFTER = 0.2
_MOST_TRIES = 3


class _Connection(Protocol):
    """The connection, as far as it matters here."""

    @property
    def is_up(self) -> bool: ...
    @property
    def has_unacknowledged(self) -> bool: ...
    async def send(self, command: Command) -> bool: ...


class ResponseScheduler:
    """The responses of one conversation. `may_speak` says whether nobody else does."""

    def __init__(self, wire: _Connection, manners: RealtimeSettings, may_speak: Callable[[], bool]) -> None:
        self.under_way = ""
        """The response that the model is giving."""
        self.unnoted: dict[str, None] = {}
        """Those of whoever has the floor whose end it has not taken note of, in order."""
        self._wire = wire
        self._manners = manners
        self._may_speak = may_speak
        self._is_asked = False
        self._is_wanted = False
        self._user_waits = False
        """Whether the provider will answer what the user has said without being asked."""
        self._tries = 0
        self._count = 0
        self._configuring: deque[bool] = deque()
        """For each Configure that is not in force yet: whether it changes who has the floor."""
        self._stale: set[str] = set()
        """Those that began under the settings of whoever had the floor before."""
        self._stopping = ""

    @property
    def are_owed(self) -> bool:
        """Whether one is wanted, has been asked for, or is expected because the user has spoken; and has not begun."""
        return self._is_wanted or self._is_asked or self._user_waits

    def is_stale(self, response_id: str) -> bool:
        """Whether nobody is to hear of this response."""
        return response_id in self._stale

    async def ask(self) -> None:
        """Have the model answer, as soon as nobody speaks."""
        self._is_wanted = True
        await self.ask_if_free()

    async def ask_if_free(self) -> None:
        """Have the model answer if that is owed, and if nobody speaks."""
        is_busy = self.under_way or self._is_asked or not self._may_speak()
        if self._is_wanted and not is_busy and self._wire.is_up:
            self._is_wanted, self._is_asked = False, True
            self._count += 1
            if not await self._wire.send(CreateResponse(f"ask_{self._count}")):
                self._is_wanted, self._is_asked = True, False

    async def stop(self) -> None:
        """Stop the response that is under way, if there is one."""
        if self.under_way and self.under_way != self._stopping:
            self._stopping = self.under_way
            await self._wire.send(CancelResponse(self.under_way))

    async def configure(self, settings: SessionConfig, *, changes_voice: bool, changes_floor: bool) -> None:
        """Tell the model what it is from now on."""
        self._configuring.append(changes_floor)
        if not await self._wire.send(ConfigureSession(settings, changes_voice=changes_voice)):
            self._configuring.clear()

    def configured(self) -> None:
        """The model is what it was told to be."""
        if self._configuring:
            self._configuring.popleft()

    def user_has_spoken(self) -> None:
        """What the user said is an item now; many a provider answers that by itself."""
        detection = self._manners.turn_detection
        self._user_waits = detection is not None and detection.create_response

    def told_late(self) -> None:
        """The provider got to know something only after it had been asked for a response, or had begun one."""
        self._is_wanted = self._is_wanted or self._is_asked or bool(self.under_way)

    async def started(self, signal: ResponseStarted) -> bool:
        """The model begins to answer; whether anybody is to hear it."""
        self.under_way, self._is_asked, self._user_waits, self._tries = signal.response_id, False, False, 0
        if any(self._configuring):
            self._stale.add(signal.response_id)
            self._is_wanted = True
            await self.stop()
            return False
        self.unnoted[signal.response_id] = None
        if not self._wire.has_unacknowledged:
            # It began when the provider knew everything: nothing more is owed.
            self._is_wanted = False
        return True

    def ended(self, signal: ResponseEnded) -> None:
        """The model has answered."""
        self._stale.discard(signal.response_id)
        if signal.response_id == self.under_way:
            self.under_way = ""

    def disown(self) -> None:
        """Let nobody hear of what is still to be noted: whoever began it has given up the floor."""
        self._stale.update(self.unnoted)
        self.unnoted.clear()

    def lost(self) -> None:
        """The connection is gone: what was under way or asked for is owed."""
        self._is_wanted = self._is_wanted or self._is_asked or self._user_waits or bool(self.under_way)
        self.under_way, self._is_asked, self._user_waits = "", False, False
        self._configuring.clear()
        self._stale.clear()

    def is_about_asking(self, trouble: ProviderErrorReceived) -> bool:
        """Whether the provider would not answer; then it is asked again, unless it has been too often."""
        self._user_waits = False
        is_ours = trouble.command_id == f"ask_{self._count}"
        if trouble.code != _BUSY and not is_ours:
            return False
        self._is_asked = False
        if trouble.code != _BUSY:
            self._tries += 1
            if self._tries >= _MOST_TRIES:
                self._tries = 0
                return False
        # If the user was faster, there is a response of which we have not heard yet; its end is waited for as well.
        self._is_wanted = True
        asyncio.get_running_loop().call_later(_ASK_AGAIN_AFTER, self._ask_later)
        return True

    def _ask_later(self) -> None:
        if self._is_wanted:
            asyncio.ensure_future(self.ask_if_free()).add_done_callback(_noted)


def _noted(task: "asyncio.Task[None]") -> None:
    # Whoever has the floor finds out by the line; here it is only seen to that nobody complains about it.
    if not task.cancelled() and not isinstance(task.exception(), BatonError | None):
        task.result()


class CallLedger:
    """What each call id was used for."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[str, str]] = {}

    def remember(self, made: Mapping[str, tuple[str, str]]) -> None:
        """Take note of calls that are on record: the tool's name and the arguments, by id."""
        self._made.update(made)

    def sorted_out(self, message: AssistantMessage) -> tuple[AssistantMessage, list[ToolCall], list[ToolCall]]:
        """The message with those calls only that are new; those that were made before; those whose id means another."""
        fresh: list[ToolCall] = []
        repeated: list[ToolCall] = []
        altered: list[ToolCall] = []
        for call in message.tool_calls:
            this = (call.name, call.arguments)
            if call.id not in self._made:
                self._made[call.id] = this
                fresh.append(call)
            else:
                (repeated if self._made[call.id] == this else altered).append(call)
        if len(fresh) < len(message.tool_calls):
            message = AssistantMessage(message.content, tuple(fresh))
        return message, repeated, altered


class OpenInterrupts:
    """Whoever asks waits here. `on_question` is told at once what is asked, by its key."""

    def __init__(self, on_question: Callable[[str], None]) -> None:
        self._on_question = on_question
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._is_over = False

    @property
    def are_open(self) -> bool:
        """Whether anybody waits for an answer."""
        return bool(self._waiting)

    async def answer_to(self, key: str) -> Any:
        """The answer to a question, when somebody gives one. Ends with Suspend if the conversation ends before."""
        if self._is_over:
            raise SuspendRun(key)
        waiting = self._waiting[key] = asyncio.get_running_loop().create_future()
        self._on_question(key)
        try:
            return await waiting
        finally:
            self._waiting.pop(key, None)

    def answered(self, key: str, answer: Any) -> None:
        """Give the answer to whoever waits for it."""
        waiting = self._waiting.get(key)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def give_up(self) -> None:
        """Nobody can answer any more: whoever waits for an answer is suspended."""
        self._is_over = True
        for key, waiting in self._waiting.items():
            if not waiting.done():
                waiting.set_exception(SuspendRun(key))
