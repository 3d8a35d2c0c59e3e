"""A scripted realtime model and its connections."""

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
    """An open session with a scripted provider, with controls for tests.

    A rejected command causes a `ProviderErrorReceived`. If the client could have avoided it, that is, if command and
    signal have not just crossed on the way, it is also reported to `complain`.
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
        """Open a session; `ScriptedRealtimeModel.connect` does this.

        Args:
            script: The script of the provider.
            settings: The initial configuration.
            session_id: Id of the session.
            complain: Called with each avoidable mistake of the client.
            intercept: Returns the error that replaces the execution of a command, or None.
        """
        self.sent: list[Command] = []
        """The commands that were received, in order."""
        self._name = script.name
        self._complain = complain
        self._intercept = intercept
        self._queue = SignalQueue()
        self._provider = ScriptedProvider(script, settings, self._queue)
        self.emit(SessionReady(session_id))

    async def send(self, command: Command) -> None:
        """Execute a command.

        Args:
            command: The command.

        Raises:
            ModelConnectionError: The connection is closed or cut.
        """
        kind = type(command).__name__
        if self._queue.end == "closed":
            self._complain(f"{kind} after the connection was closed")
        if not self.is_open:
            raise ModelConnectionError("the connection is closed", model=self._name, retryable=True)
        instead = self._intercept(command)
        if isinstance(instead, ModelConnectionError):
            self.cut(instead)
            raise instead
        self.sent.append(command)
        self._queue.wake()
        if instead is not None:
            self.emit(instead)
            return
        try:
            self._provider.execute(command)
        except CommandRejectedError as error:
            self.emit(ProviderErrorReceived(error.code, str(error), command.id))
            if error.is_avoidable:
                self._complain(f"{kind}: {error}")

    def __aiter__(self) -> AsyncIterator[Signal]:
        """Iterate over the signals of the provider."""
        return aiter(self._queue)

    async def close(self) -> None:
        """Close the connection as the client; no more signals are sent."""
        self._queue.stop("closed")
        await asyncio.gather(*self._provider.stop(), return_exceptions=True)

    @property
    def settings(self) -> SessionConfig:
        """The configuration in force."""
        return self._provider.settings

    @property
    def voice(self) -> str | None:
        """The voice in use."""
        return self._provider.voice

    @property
    def signals(self) -> list[Signal]:
        """All signals sent, in order; pass one to `emit` to repeat it."""
        return self._queue.signals

    @property
    def items(self) -> list[ConversationItem]:
        """The provider's conversation."""
        return self._provider.conversation.items

    @property
    def heard(self) -> bytes:
        """All audio received."""
        return b"".join([command.audio for command in self.sent_of(AppendAudio)])

    @property
    def is_open(self) -> bool:
        """True if it is neither closed nor cut."""
        return not self._queue.end

    def sent_of(self, kind: type[C]) -> list[C]:
        """Return the received commands of a type.

        Args:
            kind: The type.
        """
        return [command for command in self.sent if isinstance(command, kind)]

    def told(self, kind: type[S]) -> list[S]:
        """Return the sent signals of a type.

        Args:
            kind: The type.
        """
        return [signal for signal in self.signals if isinstance(signal, kind)]

    async def wait_for(self, kind: type[C], *, count: int = 1, within: float = 5.0) -> C:
        """Wait for a command and return it.

        Args:
            kind: Type of the command.
            count: Number of the command of that type, starting at 1.
            within: Timeout in seconds.

        Raises:
            AssertionError: It did not arrive in time.
        """
        await self._queue.until(
            lambda: len(self.sent_of(kind)) >= count,
            within=within,
            wanted=lambda: f"{kind.__name__} number {count}; there came: {_kinds(self.sent)}",
        )
        return self.sent_of(kind)[count - 1]

    async def wait_until_read(self, kind: type[S], *, count: int = 1, within: float = 5.0) -> S:
        """Wait until the client has read a signal and return it.

        Args:
            kind: Type of the signal.
            count: Number of the signal of that type, starting at 1.
            within: Timeout in seconds.

        Raises:
            AssertionError: It did not happen in time.
        """

        def read() -> list[S]:
            return [signal for signal in self._queue.read if isinstance(signal, kind)]

        await self._queue.until(
            lambda: len(read()) >= count,
            within=within,
            wanted=lambda: f"{kind.__name__} number {count} to be read; there were: {_kinds(self._queue.read)}",
        )
        return read()[count - 1]

    def emit(self, *signals: Signal) -> None:
        """Send signals to the client, without validation.

        Args:
            *signals: The signals.
        """
        self._queue.send(*signals)

    def cut(self, error: BaseException | None = None) -> None:
        """Cut the connection; signals sent before are still read.

        Args:
            error: The error raised to the reader; by default a ModelConnectionError.
        """
        self._provider.stop()
        self._queue.stop(error or ModelConnectionError("the connection was cut", model=self._name, retryable=True))

    def end(self) -> None:
        """Close the connection normally, as the provider."""
        self._provider.stop()
        self._queue.stop("ended")

    def user_speaks(self, text: str | None) -> str:
        """Let the user say something.

        Args:
            text: The transcript; None if it cannot be transcribed.

        Returns:
            The id of the user's item.
        """
        self._provider.start_speech()
        return self._provider.end_speech(text)

    def user_begins(self) -> str:
        """Let the user start to speak, and return the id of the item."""
        return self._provider.start_speech()

    def user_ceases(self, text: str | None) -> str:
        """Let the user stop speaking, and return the id of the item.

        Args:
            text: The transcript; None if it cannot be transcribed.
        """
        return self._provider.end_speech(text)


def _kinds(things: Sequence[Any]) -> str:
    return ", ".join([type(thing).__name__ for thing in things]) or "nothing"


class ScriptedRealtimeModel:
    """A realtime model that plays scripted steps, one for each response.

    The steps are those of a `ScriptedModel`. A ModelConnectionError as a step cuts the connection, other ModelErrors
    fail the response. Loud audio from the session is detected as speech; `connection.user_speaks` needs no audio.
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
        """Create a model.

        Args:
            steps: The steps in order, or steps by agent name.
            hears: Transcripts of the audio that the session sends, one for each turn of the user.
            voices: Names of the voices it accepts; None accepts any.
            ms_per_word: Duration of a spoken word.
            name: The model's name.
            cycle: Whether to start again after the last step.
        """
        self.name = name
        self.ms_per_word = ms_per_word
        self.connections: list[ScriptedConnection] = []
        """All connections, in order of opening."""
        self.complaints: list[str] = []
        """Avoidable mistakes of clients, in order."""
        self._voices = None if voices is None else tuple(voices)
        self._hears = list(hears)
        self._script = ScriptedModel(steps, name=name, cycle=cycle, stream=True)
        self._counts: Counter[str] = Counter()
        self._interceptions: list[tuple[type[Command], ProviderErrorReceived | ModelConnectionError]] = []
        self._failures: list[Exception] = []
        self._opened = asyncio.Event()

    @property
    def requests(self) -> list[ModelRequest]:
        """The request of each response, in order."""
        return self._script.requests

    @property
    def remaining(self) -> int:
        """Number of steps that have not been played."""
        return self._script.remaining

    def assert_done(self) -> None:
        """Raise AssertionError if steps were not played."""
        self._script.assert_done()

    def fast_forward(self, events: Iterable[Event]) -> None:
        """Skip the steps whose responses are in a log.

        Args:
            events: The events of the log.
        """
        self._script.fast_forward(events)

    def check(self, settings: SessionConfig) -> None:
        """Validate a configuration.

        Args:
            settings: The configuration.

        Raises:
            SetupError: Two tools have one name, or the voice is unknown.
        """
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
        """Open a session.

        Args:
            settings: The initial configuration.
        """
        self.check(settings)
        if self._failures:
            raise self._failures.pop(0)
        connection = ScriptedConnection(
            self,
            settings,
            session_id=self.new_id("session"),
            complain=self.complaints.append,
            intercept=self._intercepted,
        )
        self.connections.append(connection)
        self._opened.set()
        self._opened = asyncio.Event()
        return connection

    async def connection(self, number: int = 1, *, within: float = 5.0) -> ScriptedConnection:
        """Wait for a connection and return it.

        Args:
            number: Number of the connection, starting at 1.
            within: Timeout in seconds.

        Raises:
            AssertionError: It was not opened in time.
        """
        try:
            async with asyncio.timeout(within):
                while len(self.connections) < number:
                    await self._opened.wait()
        except TimeoutError:
            opened = len(self.connections)
            raise AssertionError(f"waited {within:g} s for connection {number}; {opened} were opened") from None
        return self.connections[number - 1]

    def fail_to_connect(self, *errors: Exception) -> None:
        """Fail the next calls of `connect`.

        Args:
            *errors: The errors, one for each call.
        """
        self._failures += errors

    def refuse(self, kind: type[Command], *, code: str, message: str) -> None:
        """Reject the next command of a type.

        Args:
            kind: The type.
            code: Code of the error.
            message: Message of the error.
        """
        self._interceptions.append((kind, ProviderErrorReceived(code, message)))

    def cut_at(self, kind: type[Command]) -> None:
        """Cut the connection when the next command of a type is sent, before it arrives.

        Args:
            kind: The type.
        """
        error = ModelConnectionError("the connection was cut while sending", model=self.name, retryable=True)
        self._interceptions.append((kind, error))

    def new_id(self, kind: str) -> str:
        """Return a new id such as `piece_1`, distinct from the ids that clients create.

        Args:
            kind: Prefix of the id.
        """
        self._counts[kind] += 1
        return f"{kind}_{self._counts[kind]}"

    def next_heard(self) -> str | None:
        """Return the transcript of the user's next turn, None if there is none left."""
        return self._hears.pop(0) if self._hears else None

    def respond(self, request: ModelRequest) -> AsyncIterable[Chunk]:
        """Play the next step.

        Args:
            request: The request of the response.
        """
        return self._script.respond(request)

    def _intercepted(self, command: Command) -> ProviderErrorReceived | ModelConnectionError | None:
        for index, (kind, error) in enumerate(self._interceptions):
            if isinstance(command, kind):
                del self._interceptions[index]
                return (
                    ProviderErrorReceived(error.code, error.message, command.id)
                    if isinstance(error, ProviderErrorReceived)
                    else error
                )
        return None
