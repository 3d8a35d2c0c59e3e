"""A live conversation with a scripted provider, seen from both sides."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

from ...errors import ModelConnectionError
from ...realtime.commands import AppendAudio, Command
from ...realtime.settings import SessionConfig
from ...realtime.signals import ProviderErrorReceived, SessionReady, Signal
from .conversation import CommandRejectedError, ConversationItem
from .provider import RealtimeScript, ScriptedProvider
from .wire import SignalQueue

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
