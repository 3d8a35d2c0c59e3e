"""Two backends for the same tests: a scripted provider in memory, and OpenAI's format over a websocket."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

# Imported here, because the first import takes seconds and would count against the limits of a session.
import openai.resources.realtime.realtime  # noqa: F401 # pyright: ignore[reportUnusedImport]
from tests.servers import OpenAIRealtimeServer
from tests.servers.realtime import RecordedEvent, ServedSession, silence, speech

from baton.messages import text_of
from baton.realtime import RealtimeModel, RealtimeSession
from baton.realtime.openai import OpenAIRealtimeModel
from baton.realtime.protocol import (
    AddItem,
    AppendAudio,
    CancelResponse,
    ClearAudio,
    Command,
    CommitAudio,
    ConfigureSession,
    CreateResponse,
    TruncateItem,
)
from baton.testing import ScriptedConnection, ScriptedRealtimeModel
from baton.testing.realtime import ConversationItem
from baton.testing.scripted import ScriptStep

Steps = Iterable[ScriptStep] | Mapping[str, Iterable[ScriptStep]]
WITHIN = 60.0
MS_PER_WORD = 200


class Backend(Protocol):
    """Where a conversation takes place. Connections are counted from 0; -1 is the last."""

    async def plays(self, steps: Steps) -> RealtimeModel:
        """The model that plays these steps. An agent's own steps are found by its instructions: its name."""
        ...

    def commands(self, connection: int = -1) -> list[str]:
        """What the client has sent after the connection was set up, without audio: `configure`, `user`, `result`…"""
        ...

    def told(self, connection: int = -1) -> list[tuple[str, str]]:
        """What the provider knows: whose it is, and the words; or the call id of a call or a result."""
        ...

    def settings(self, connection: int = -1) -> tuple[str, list[str], str | None]:
        """Instructions, names of tools and voice that are in force."""
        ...

    async def until(self, command: str, nth: int = 1, *, connection: int = 0) -> None:
        """Until the client has sent this for the nth time."""
        ...

    async def connected(self, connection: int) -> None:
        """Until there is a connection of this number."""
        ...

    async def begins_to_speak(self, session: RealtimeSession) -> None:
        """The user begins to speak."""
        ...

    async def has_said(self, session: RealtimeSession, words: str) -> None:
        """The user, who has begun to speak, has said this and is quiet now."""
        ...

    async def cut(self) -> None:
        """The connection is torn."""
        ...

    async def hang_up(self) -> None:
        """The provider closes the conversation in good order."""
        ...

    @property
    def connections(self) -> int:
        """How many there were."""
        ...

    @property
    def complaints(self) -> Sequence[object]:
        """What the client did wrong."""
        ...

    async def close(self) -> None:
        """Nothing more happens here."""
        ...


async def says(backend: Backend, session: RealtimeSession, words: str) -> None:
    """The user says this aloud."""
    await backend.begins_to_speak(session)
    await backend.has_said(session, words)


_NAMES: dict[type[Command], str] = {
    ConfigureSession: "configure",
    CommitAudio: "commit",
    ClearAudio: "clear",
    CreateResponse: "respond",
    CancelResponse: "cancel",
    TruncateItem: "truncate",
}
_ROLES = {"UserMessage": "user", "AssistantMessage": "assistant", "SystemMessage": "system", "ToolMessage": "result"}


class InMemory:
    """A scripted provider."""

    def __init__(self) -> None:
        self.model = ScriptedRealtimeModel([])

    async def plays(self, steps: Steps) -> ScriptedRealtimeModel:
        self.model = ScriptedRealtimeModel(steps, ms_per_word=MS_PER_WORD)
        return self.model

    def at(self, connection: int = -1) -> ScriptedConnection:
        return self.model.connections[connection]

    def commands(self, connection: int = -1) -> list[str]:
        sent = [command for command in self.at(connection).sent if not isinstance(command, AppendAudio)]
        return [
            _ROLES[type(each.message).__name__] if isinstance(each, AddItem) else _NAMES[type(each)] for each in sent
        ]

    def told(self, connection: int = -1) -> list[tuple[str, str]]:
        return _told(self.at(connection).items)

    def settings(self, connection: int = -1) -> tuple[str, list[str], str | None]:
        settings = self.at(connection).settings
        return settings.instructions, [tool.name for tool in settings.tools], self.at(connection).voice

    async def until(self, command: str, nth: int = 1, *, connection: int = 0) -> None:
        await self.model.connection(connection + 1, within=WITHIN)
        kinds = {name: kind for kind, name in _NAMES.items()}
        await self.at(connection).wait_for(kinds.get(command, AddItem), within=WITHIN)
        while self.commands(connection).count(command) < nth:
            sent = len(self.at(connection).sent_of(kinds.get(command, AddItem)))
            await self.at(connection).wait_for(kinds.get(command, AddItem), count=sent + 1, within=WITHIN)

    async def connected(self, connection: int) -> None:
        await self.model.connection(connection + 1, within=WITHIN)

    async def begins_to_speak(self, session: RealtimeSession) -> None:
        self.at().user_begins()

    async def has_said(self, session: RealtimeSession, words: str) -> None:
        self.at().user_ceases(words)

    async def cut(self) -> None:
        self.at().cut()

    async def hang_up(self) -> None:
        self.at().end()

    @property
    def connections(self) -> int:
        return len(self.model.connections)

    @property
    def complaints(self) -> Sequence[object]:
        return self.model.complaints

    async def close(self) -> None:
        for connection in self.model.connections:
            await connection.close()


_WIRE = {
    "session.update": "configure",
    "input_audio_buffer.commit": "commit",
    "input_audio_buffer.clear": "clear",
    "response.create": "respond",
    "response.cancel": "cancel",
    "conversation.item.truncate": "truncate",
}
_WIRE_ROLES = {"function_call": "assistant", "function_call_output": "result"}


class OverTheWire:
    """OpenAI's format, its official SDK, and a real websocket."""

    def __init__(self, **options: Any) -> None:
        self.server = OpenAIRealtimeServer([])
        self.words: deque[str | BaseException] = deque()
        """What is in the audio that is committed next."""
        self._options = options
        self._model: OpenAIRealtimeModel | None = None

    async def plays(self, steps: Steps) -> OpenAIRealtimeModel:
        by: Callable[[ServedSession], str] | None = _whose if isinstance(steps, Mapping) else None
        options: dict[str, Any] = {"ms_per_word": MS_PER_WORD, **self._options}
        self.server = OpenAIRealtimeServer(cast("Any", steps), by=by, hears=self._heard(), **options)
        await self.server.__aenter__()
        self._model = OpenAIRealtimeModel(api_key=self.server.api_key, base_url=self.server.base_url)
        return self._model

    def _heard(self) -> Iterator[str | BaseException]:
        while True:
            yield self.words.popleft() if self.words else ""

    def at(self, connection: int = -1) -> ServedSession:
        return self.server.sessions[connection]

    def commands(self, connection: int = -1) -> list[str]:
        received = [each for each in self.at(connection).received if each.type != "input_audio_buffer.append"]
        return [_name(each) for each in received[1:]]

    def told(self, connection: int = -1) -> list[tuple[str, str]]:
        return _told(self.at(connection).items)

    def settings(self, connection: int = -1) -> tuple[str, list[str], str | None]:
        settings = self.at(connection).settings
        names = [tool["name"] for tool in settings["tools"]]
        return settings["instructions"], names, settings["audio"]["output"]["voice"]

    async def until(self, command: str, nth: int = 1, *, connection: int = 0) -> None:
        at = await self.server.session(connection, within=WITHIN)
        kinds = {name: kind for kind, name in _WIRE.items()}
        kind = kinds.get(command, "conversation.item.create")
        await at.until_received(kind, within=WITHIN)
        while self.commands(connection).count(command) < nth:
            received = [each for each in at.received if each.type == kind]
            await at.until_received(kind, len(received) + 1, within=WITHIN)

    async def connected(self, connection: int) -> None:
        await self.server.session(connection, within=WITHIN)

    async def begins_to_speak(self, session: RealtimeSession) -> None:
        began = len([each for each in self.at().sent if each.type == "input_audio_buffer.speech_started"])
        await session.send_audio(speech("hello", ms_per_word=MS_PER_WORD))
        await self.at().until_sent("input_audio_buffer.speech_started", began + 1, within=WITHIN)

    async def has_said(self, session: RealtimeSession, words: str) -> None:
        self.words.append(words)
        await session.send_audio(speech(words, ms_per_word=MS_PER_WORD) + silence(600))

    async def cut(self) -> None:
        await self.at().abort()

    async def hang_up(self) -> None:
        await self.at().close(1000)

    @property
    def connections(self) -> int:
        return len(self.server.sessions)

    @property
    def complaints(self) -> Sequence[object]:
        return self.server.complaints

    async def close(self) -> None:
        if self._model is not None:
            await self._model.aclose()
        await self.server.__aexit__(None, None, None)


def _whose(session: ServedSession) -> str:
    return session.settings["instructions"].partition(":")[0]


def _name(recorded: RecordedEvent) -> str:
    if recorded.type != "conversation.item.create":
        return _WIRE[recorded.type]
    item = recorded.event["item"]
    return _WIRE_ROLES.get(item["type"]) or item["role"]


def _told(items: Sequence[ConversationItem]) -> list[tuple[str, str]]:
    return [(item.role, item.call_id or text_of(item.message.content)) for item in items]


async def nothing_left() -> set[str]:
    """The names of our own tasks that have not ended, once those that were about to end have."""
    for _ in range(5):
        await asyncio.sleep(0)
    return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("baton")}
