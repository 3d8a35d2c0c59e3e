"""The contract of a realtime model: a connection that is open both ways for as long as a conversation lasts."""

from collections.abc import AsyncIterator
from typing import Protocol, runtime_checkable

from .commands import Command
from .settings import SessionConfig
from .signals import Signal


class RealtimeConnection(Protocol):
    """One open conversation with a model. Commands are sent in order; one sends, another task reads."""

    async def send(self, command: Command) -> None:
        """Send one command. Raises ModelConnectionError if the connection is gone; nothing of it was sent then.

        Raises ModelRequestError for an item that the provider has no form for, such as a picture by its address.
        Returning does not mean that it has arrived: what the provider says to it comes as signals.
        """
        ...

    def __aiter__(self) -> AsyncIterator[Signal]:
        """What the provider says, in order. Ends when it closes in good order; a cut is a ModelConnectionError."""
        ...

    async def close(self) -> None:
        """Close it, and return when that is done. May be called at any time, and more than once."""
        ...


@runtime_checkable
class RealtimeModel(Protocol):
    """Opens conversations. It keeps nothing of them: one model may hold many at once."""

    @property
    def name(self) -> str:
        """The name by which logs, usage and errors know it."""
        ...

    def check(self, settings: SessionConfig) -> None:
        """Raise SetupError, naming what is wrong and what would work, if the provider would not take these settings."""
        ...

    async def connect(self, settings: SessionConfig) -> RealtimeConnection:
        """Open a conversation under these settings, which are in force then. Raises a ModelError if that cannot be.

        The first signal is SessionReady; Configured is only said to a Configure.
        """
        ...
