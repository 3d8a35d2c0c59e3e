"""A realtime model that answers as a test tells it to.

A live conversation with a scripted provider, seen from both sides.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ...errors import ModelConnectionError, SetupError, quote_names
from ...events import Event
from ...models import Chunk, ModelRequest
from ...realtime.protocol import AppendAudio, Command, ProviderErrorReceived, SessionReady, Signal
from ...realtime.settings import SessionConfig
from ..audio import MS_PER_WORD
from ..scripted import ScriptedModel, ScriptStep
from .conversation import CommandRejectedError, ConversationItem
from .provider import RealtimeScript, ScriptedProvider, SignalQueue

S = TypeVar("S", bound=Signal)
C = TypeVar("C", bound=Command)
Intercept = Callable[[Command], "ProviderErrorReceived | ModelConnectionError | None"]


class ScriptedConnection:
    """One open conversation: a session sends and reads; a test lets the user speak, cuts it, and looks on.

    What a client does wrong although it could know better goes to `complain` as well as into a Trouble. Where the two
    have only crossed on the way, such as a Respond and a response that the provider has just begun, it is just Trouble.
    """

    def __init__(
        self,
        script: RealtimeScript,
        settings: SessionConfig,
        *,
        session_id: str,
        complain: Callable[[str], None],
        intercept: Intercept,
    ) -> None:
        self.sent: list[Command] = []
        """The commands that have arrived, in order."""
        self._name = script.name
        self._complain = complain
        self._intercept = intercept
        self._wire = SignalQueue()
        self._provider = ScriptedProvider(script, settings, self._wire)
        self.emit(SessionReady(session_id))

    async def send(self, command: Command) -> None:
        """Take a command; what comes of it is told in signals."""
        kind = type(command).__name__
        if self._wire.end == "closed":
            self._complain(f"{kind} after the connection was closed")
        if not self.is_open:
            raise ModelConnectionError("the connection is gone", model=self._name, retryable=True)
        instead = self._intercept(command)
        if isinstance(instead, ModelConnectionError):
            self.cut(instead)
            raise instead
        self.sent.append(command)
        self._wire.wake()
        if instead is not None:
            self.emit(instead)
            return
        try:
            self._provider.carry_out(command)
        except CommandRejectedError as objection:
            self.emit(ProviderErrorReceived(objection.code, str(objection), command.id))
            if objection.is_foreseeable:
                self._complain(f"{kind}: {objection}")

    def __aiter__(self) -> AsyncIterator[Signal]:
        """What the provider says."""
        return aiter(self._wire)

    async def close(self) -> None:
        """Close it from the side of the client: nothing more is told."""
        self._wire.stop("closed")
        await asyncio.gather(*self._provider.stop(), return_exceptions=True)

    @property
    def settings(self) -> SessionConfig:
        """What is in force: the settings of `connect`, or of the last Configure that was taken."""
        return self._provider.settings

    @property
    def voice(self) -> str | None:
        """The voice that it speaks with."""
        return self._provider.voice

    @property
    def signals(self) -> list[Signal]:
        """Everything that the client was told or is about to read, in order; give one to `emit` to repeat it."""
        return self._wire.signals

    @property
    def items(self) -> list[ConversationItem]:
        """The conversation as the provider has it."""
        return self._provider.conversation.items

    @property
    def heard(self) -> bytes:
        """All the audio that has arrived."""
        return b"".join([command.audio for command in self.sent_of(AppendAudio)])

    @property
    def is_open(self) -> bool:
        """Whether it is neither closed nor cut."""
        return not self._wire.end

    def sent_of(self, kind: type[C]) -> list[C]:
        """The commands of this kind that have arrived."""
        return [command for command in self.sent if isinstance(command, kind)]

    def told(self, kind: type[S]) -> list[S]:
        """The signals of this kind."""
        return [signal for signal in self.signals if isinstance(signal, kind)]

    async def wait_for(self, kind: type[C], *, count: int = 1, within: float = 5.0) -> C:
        """The command of this kind that arrives as number `count`, as soon as it has."""
        await self._wire.until(
            lambda: len(self.sent_of(kind)) >= count,
            within=within,
            wanted=lambda: f"{kind.__name__} number {count}; there came: {_kinds(self.sent)}",
        )
        return self.sent_of(kind)[count - 1]

    async def wait_until_read(self, kind: type[S], *, count: int = 1, within: float = 5.0) -> S:
        """The signal of this kind that the client reads as number `count`, as soon as it has."""

        def read() -> list[S]:
            return [signal for signal in self._wire.read if isinstance(signal, kind)]

        await self._wire.until(
            lambda: len(read()) >= count,
            within=within,
            wanted=lambda: f"{kind.__name__} number {count} to be read; there were: {_kinds(self._wire.read)}",
        )
        return read()[count - 1]

    def emit(self, *signals: Signal) -> None:
        """Tell the client this, whether it makes sense or not."""
        self._wire.tell(*signals)

    def cut(self, error: BaseException | None = None) -> None:
        """Break the connection: what was told before is still read, then this is raised; nothing can be sent."""
        self._provider.stop()
        self._wire.stop(error or ModelConnectionError("the connection was cut", model=self._name, retryable=True))

    def end(self) -> None:
        """Close it in good order from the side of the provider."""
        self._provider.stop()
        self._wire.stop("ended")

    def user_speaks(self, text: str | None) -> str:
        """The user says something, None if nobody can make out what; the id of the item."""
        self._provider.begin_speech()
        return self._provider.end_speech(text)

    def user_begins(self) -> str:
        """The user begins to speak, which stops a response if the conversation is held so; the id of the item."""
        return self._provider.begin_speech()

    def user_ceases(self, text: str | None) -> str:
        """The user has said this, which is answered if the conversation is held so; the id of the item."""
        return self._provider.end_speech(text)


def _kinds(things: Sequence[Any]) -> str:
    return ", ".join([type(thing).__name__ for thing in things]) or "nothing"


class ScriptedRealtimeModel:
    """Plays steps in order, one for each response; with a mapping, each agent has steps of its own.

    The steps are those of a ScriptedModel. Text is said word by word, each `ms_per_word` long if the conversation is
    held in audio; a ModelConnectionError cuts the connection, other ModelErrors let the response fail. `hears` has what
    the user says in audio that the session commits; what the user says by itself is said with `user_speaks`.
    """

    def __init__(
        self,
        steps: Iterable[ScriptStep] | Mapping[str, Iterable[ScriptStep]],
        *,
        hears: Iterable[str] = (),
        voices: Sequence[str] | None = None,
        ms_per_word: int = MS_PER_WORD,
        name: str = "scripted-realtime",
        cycle: bool = False,
    ) -> None:
        self.name = name
        self.ms_per_word = ms_per_word
        self.connections: list[ScriptedConnection] = []
        """Every connection that was opened, in order."""
        self.complaints: list[str] = []
        """What clients did that no provider would take, in order."""
        self._voices = None if voices is None else tuple(voices)
        self._hears = list(hears)
        self._script = ScriptedModel(steps, name=name, cycle=cycle, stream=True)
        self._counts: Counter[str] = Counter()
        self._instead: list[tuple[type[Command], ProviderErrorReceived | ModelConnectionError]] = []
        self._failures: list[Exception] = []
        self._opened = asyncio.Event()

    @property
    def requests(self) -> list[ModelRequest]:
        """What each response was asked with, in order: the agent, its settings, and the conversation."""
        return self._script.requests

    @property
    def remaining(self) -> int:
        """How many steps have not been played yet."""
        return self._script.remaining

    def assert_done(self) -> None:
        """Fail if there are steps that were never played, and say which."""
        self._script.assert_done()

    def fast_forward(self, events: Iterable[Event]) -> None:
        """Go to the place where it would be if it had given the answers that are in this log, and no others."""
        self._script.fast_forward(events)

    def check(self, settings: SessionConfig) -> None:
        """Refuse two tools of one name, and a voice that is not among `voices`."""
        names = Counter(tool.name for tool in settings.tools)
        twice = [name for name, count in names.items() if count > 1]
        if twice:
            raise SetupError(
                f"`{settings.agent}` has several tools called {quote_names(twice)}; give each a name of its own"
            )
        voice = settings.voice or settings.settings.voice
        if self._voices is not None and voice is not None and voice not in self._voices:
            raise SetupError(
                f"`{settings.agent}` wants the voice `{voice}`; `{self.name}` has: {quote_names(self._voices)}"
            )

    async def connect(self, settings: SessionConfig) -> ScriptedConnection:
        """Open a conversation."""
        self.check(settings)
        if self._failures:
            raise self._failures.pop(0)
        connection = ScriptedConnection(
            self,
            settings,
            session_id=self.new_id("session"),
            complain=self.complaints.append,
            intercept=self._instead_of,
        )
        self.connections.append(connection)
        self._opened.set()
        self._opened = asyncio.Event()
        return connection

    async def connection(self, number: int = 1, *, within: float = 5.0) -> ScriptedConnection:
        """The connection that is opened as number `number`, as soon as it is open."""
        try:
            async with asyncio.timeout(within):
                while len(self.connections) < number:
                    await self._opened.wait()
        except TimeoutError:
            opened = len(self.connections)
            raise AssertionError(f"waited {within:g} s for connection {number}; {opened} were opened") from None
        return self.connections[number - 1]

    def fail_to_connect(self, *errors: Exception) -> None:
        """Raise these, one each, the next times that somebody wants to connect."""
        self._failures += errors

    def refuse(self, kind: type[Command], *, code: str, message: str) -> None:
        """Answer the next command of this kind with Trouble, and do not carry it out."""
        self._instead.append((kind, ProviderErrorReceived(code, message)))

    def cut_at(self, kind: type[Command]) -> None:
        """Cut the connection when the next command of this kind is sent: it does not arrive."""
        error = ModelConnectionError("the connection was cut while sending", model=self.name, retryable=True)
        self._instead.append((kind, error))

    def new_id(self, kind: str) -> str:
        """A name for one more thing of a kind: `piece_1`, `piece_2`; never one twice, and none that a client makes."""
        self._counts[kind] += 1
        return f"{kind}_{self._counts[kind]}"

    def next_heard(self) -> str | None:
        """What the user is to have said in the audio that is committed now."""
        return self._hears.pop(0) if self._hears else None

    def respond(self, request: ModelRequest) -> AsyncIterable[Chunk]:
        """The next step, as it is played."""
        return self._script.respond(request)

    def _instead_of(self, command: Command) -> ProviderErrorReceived | ModelConnectionError | None:
        for place, (kind, instead) in enumerate(self._instead):
            if isinstance(command, kind):
                del self._instead[place]
                return (
                    ProviderErrorReceived(instead.code, instead.message, command.id)
                    if isinstance(instead, ProviderErrorReceived)
                    else instead
                )
        return None
