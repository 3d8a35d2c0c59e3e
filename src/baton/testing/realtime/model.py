"""A realtime model that answers as a test tells it to."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence

from ...errors import ModelConnectionError, SetupError, quote_names
from ...events import Event
from ...models import Chunk, ModelRequest
from ...realtime.commands import Command
from ...realtime.settings import SessionConfig
from ...realtime.signals import ProviderErrorReceived
from ..scripted import ScriptedModel
from ..speech import MS_PER_WORD
from ..steps import ScriptStep
from .connection import ScriptedConnection


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

    def go_on_after(self, events: Iterable[Event]) -> None:
        """Go to the place where it would be if it had given the answers that are in this log, and no others."""
        self._script.go_on_after(events)

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
