"""A scripted realtime model and its connections."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Literal, TypeVar

from msgspec.structs import replace

from ...errors import ModelConnectionError, SetupError, quote_names
from ...realtime.protocol import AppendAudio, Command, ProviderErrorReceived, SessionReady, Signal
from ...realtime.voice_settings import SessionConfig
from ..scripted import Script, ScriptedModel
from .audio import MS_PER_WORD
from .conversation import CommandRejectedError, ConversationItem
from .provider import ScriptedProvider
from .responses import ItemEvent, ProviderEvent, RealtimeScript

S = TypeVar("S", bound=Signal)
T = TypeVar("T")
C = TypeVar("C", bound=Command)


class ScriptedConnection:
    """An open session with a scripted provider, with controls for tests.

    A rejected command causes a `ProviderErrorReceived`. If the client could have avoided it, that is, if command and
    signal have not just crossed on the way, it is also one of the model's `complaints`.
    """

    def __init__(self, model: "ScriptedRealtimeModel", settings: SessionConfig) -> None:
        """Open a session; `ScriptedRealtimeModel.connect` does this.

        Args:
            model: The model that opens it.
            settings: The initial configuration.
        """
        self.sent: list[Command] = []
        """The commands that were received, in order."""
        self.signals: list[Signal] = []
        """All signals sent, in order; pass one to `emit` to repeat it."""
        self._model = model
        self._end: Literal["", "ended", "closed"] | BaseException = ""
        """Empty while open; "ended" by the provider, "closed" by the client, or the error that cut it."""
        self._read = 0
        """The number of signals that the client has read."""
        self._changed = asyncio.Event()
        self._provider = ScriptedProvider(model._script, settings, self)
        self.emit(SessionReady(model._script.new_id("session")))

    async def send(self, command: Command) -> None:
        """Execute a command.

        Args:
            command: The command.

        Raises:
            ModelConnectionError: The connection is closed or cut.
        """
        kind = type(command).__name__
        if self._end == "closed":
            self._model.complaints.append(f"{kind} after the connection was closed")
        if not self.is_open:
            raise ModelConnectionError("the connection is closed", model=self._model.name, retryable=True)
        instead = self._model._intercepted(command)
        if isinstance(instead, ModelConnectionError):
            self.cut(instead)
            raise instead
        self.sent.append(command)
        self._wake()
        if instead is not None:
            self.emit(instead)
            return
        try:
            self._provider.execute(command)
        except CommandRejectedError as error:
            self.emit(ProviderErrorReceived(error.code, str(error), command.id))
            if error.is_avoidable:
                self._model.complaints.append(f"{kind}: {error}")

    async def __aiter__(self) -> AsyncIterator[Signal]:
        """Iterate over the signals of the provider."""
        while self._end != "closed":
            if self._read < len(self.signals):
                self._read += 1
                self._wake()
                yield self.signals[self._read - 1]
            elif isinstance(self._end, BaseException):
                raise self._end
            elif self._end:
                return
            else:
                await self._changed.wait()

    async def close(self) -> None:
        """Close the connection as the client; no more signals are sent."""
        await asyncio.gather(*self._stop("closed"), return_exceptions=True)

    @property
    def settings(self) -> SessionConfig:
        """The configuration in force."""
        return self._provider.settings

    @property
    def voice(self) -> str | None:
        """The voice in use."""
        return self._provider.voice

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
        return not self._end

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

    async def wait_for(self, kind: type[C], *, count: int = 1, within: float = 60.0) -> C:
        """Wait for a command and return it.

        Args:
            kind: Type of the command.
            count: Number of the command of that type, starting at 1.
            within: Timeout in seconds.

        Raises:
            AssertionError: It did not arrive in time.
        """
        return await self._wait_for(lambda: self.sent, kind, count, within=within, what="; there came")

    async def wait_until_read(self, kind: type[S], *, count: int = 1, within: float = 60.0) -> S:
        """Wait until the client has read a signal and return it.

        Args:
            kind: Type of the signal.
            count: Number of the signal of that type, starting at 1.
            within: Timeout in seconds.

        Raises:
            AssertionError: It did not happen in time.
        """
        what = " to be read; there were"
        return await self._wait_for(lambda: self.signals[: self._read], kind, count, within=within, what=what)

    def has_unread(self, kind: type[Signal]) -> bool:
        """Return whether the client has yet to read a signal of a type.

        Args:
            kind: The type.
        """
        return any(isinstance(signal, kind) for signal in self.signals[self._read :])

    def emit(self, *signals: ProviderEvent) -> None:
        """Send signals to the client, without validation.

        Args:
            *signals: The signals; events of the provider that are no signals are left out.
        """
        self.signals += [signal for signal in signals if not isinstance(signal, ItemEvent)]
        self._wake()

    def cut(self, error: BaseException | None = None) -> None:
        """Cut the connection; signals sent before are still read.

        Args:
            error: The error raised to the reader; by default a ModelConnectionError.
        """
        name = self._model.name
        self._stop(error or ModelConnectionError("the connection was cut", model=name, retryable=True))

    def end(self) -> None:
        """Close the connection normally, as the provider."""
        self._stop("ended")

    def user_speaks(self, text: str | None) -> str:
        """Let the user say something.

        Args:
            text: The transcript; None if it cannot be transcribed.

        Returns:
            The id of the user's item.
        """
        self._provider.start_speech()
        return self.user_ceases(text)

    def user_begins(self) -> str:
        """Let the user start to speak, and return the id of the item."""
        return self._provider.start_speech()

    def user_ceases(self, text: str | None) -> str:
        """Let the user stop speaking, and return the id of the item.

        Args:
            text: The transcript; None if it cannot be transcribed.
        """
        return self._provider.end_speech(ValueError("the audio is unintelligible") if text is None else text)

    def _stop(self, end: Literal["ended", "closed"] | BaseException) -> list[asyncio.Task[None]]:
        # The first end stays, unless the client closes the connection.
        if not self._end or end == "closed":
            self._end = end
        self._wake()
        return self._provider.stop()

    def _wake(self) -> None:
        """Wake the tasks that wait for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait_for(
        self, seen: Callable[[], Sequence[Any]], kind: type[T], count: int, *, within: float, what: str
    ) -> T:
        def found() -> list[T]:
            return [each for each in seen() if isinstance(each, kind)]

        try:
            async with asyncio.timeout(within):
                while len(found()) < count:
                    await self._changed.wait()
        except TimeoutError:
            kinds = ", ".join([type(each).__name__ for each in seen()]) or "nothing"
            raise AssertionError(f"waited {within:g} s for {kind.__name__} number {count}{what}: {kinds}") from None
        return found()[count - 1]


class ScriptedRealtimeModel(ScriptedModel):
    """A realtime model that plays scripted steps, one for each response.

    The steps are those of a `ScriptedModel`. A ModelConnectionError as a step cuts the connection, other ModelErrors
    fail the response. Loud audio from the session is detected as speech; `connection.user_speaks` needs no audio.
    """

    def __init__(
        self,
        steps: Script,
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
        super().__init__(steps, name=name, cycle=cycle, stream=True)
        self.ms_per_word = ms_per_word
        self.connections: list[ScriptedConnection] = []
        """All connections, in order of opening."""
        self.complaints: list[str] = []
        """Avoidable mistakes of clients, in order."""
        self._voices = None if voices is None else tuple(voices)
        self._script = RealtimeScript(self, iter(list(hears)), ms_per_word)
        self._interceptions: list[tuple[type[Command], ProviderErrorReceived | ModelConnectionError]] = []
        self._failures: list[Exception] = []
        self._opened = asyncio.Event()

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
        connection = ScriptedConnection(self, settings)
        self.connections.append(connection)
        self._opened.set()
        self._opened = asyncio.Event()
        return connection

    async def connection(self, number: int = 1, *, within: float = 60.0) -> ScriptedConnection:
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

    def _intercepted(self, command: Command) -> ProviderErrorReceived | ModelConnectionError | None:
        for index, (kind, error) in enumerate(self._interceptions):
            if isinstance(command, kind):
                del self._interceptions[index]
                return replace(error, command_id=command.id) if isinstance(error, ProviderErrorReceived) else error
        return None
