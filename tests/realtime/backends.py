"""Two backends for the same tests: a scripted provider, and a server that speaks OpenAI's format over a websocket."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

from tests.servers import OpenAIRealtimeServer
from tests.servers.realtime import RecordedEvent, ServedSession, silence, speech
from tests.waiting import PATIENCE

from batonkit.messages import text_of
from batonkit.realtime import RealtimeModel, RealtimeSession
from batonkit.realtime.openai import OpenAIRealtimeModel
from batonkit.realtime.protocol import (
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
from batonkit.testing import ScriptedConnection, ScriptedRealtimeModel
from batonkit.testing.realtime import ConversationItem
from batonkit.testing.scripted import ScriptStep

Steps = Iterable[ScriptStep] | Mapping[str, Iterable[ScriptStep]]
MS_PER_WORD = 200


class Backend(Protocol):
    """The provider's side of sessions. Connections are counted from 0; -1 is the last."""

    async def start(self, steps: Steps) -> RealtimeModel:
        """Start a provider with these steps and return its model; instructions must begin with the agent's name."""
        ...

    def commands(self, connection: int = -1) -> list[str]:
        """Return the client's commands after the setup, such as `configure`, `user` or `result`, without audio."""
        ...

    def items(self, connection: int = -1) -> list[tuple[str, str]]:
        """Return the role of each conversation item, and its text or call id."""
        ...

    def settings(self, connection: int = -1) -> tuple[str, list[str], str | None]:
        """Return the current instructions, names of tools and voice."""
        ...

    async def wait_for_command(self, command: str, nth: int = 1, *, connection: int = 0) -> None:
        """Wait until the client has sent a command this often."""
        ...

    async def wait_for_connection(self, connection: int) -> None:
        """Wait until there is a connection with this number."""
        ...

    async def start_speaking(self, session: RealtimeSession) -> None:
        """Let the user start to speak."""
        ...

    async def finish_speaking(self, session: RealtimeSession, words: str) -> None:
        """Let the user say this and stop speaking."""
        ...

    async def cut(self) -> None:
        """Cut the connection."""
        ...

    async def close_normally(self) -> None:
        """Close the connection normally."""
        ...

    @property
    def connection_count(self) -> int:
        """The number of connections so far."""
        ...

    @property
    def complaints(self) -> Sequence[object]:
        """The client's violations of the protocol."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


async def speak(backend: Backend, session: RealtimeSession, words: str) -> None:
    """Let the user say this."""
    await backend.start_speaking(session)
    await backend.finish_speaking(session, words)


_COMMANDS: dict[type[Command], str] = {
    ConfigureSession: "configure",
    CommitAudio: "commit",
    ClearAudio: "clear",
    CreateResponse: "respond",
    CancelResponse: "cancel",
    TruncateItem: "truncate",
}
_ROLES = {"UserMessage": "user", "AssistantMessage": "assistant", "SystemMessage": "system", "ToolMessage": "result"}


class ScriptedBackend:
    """A scripted provider in memory."""

    def __init__(self) -> None:
        self.model = ScriptedRealtimeModel([])

    async def start(self, steps: Steps) -> ScriptedRealtimeModel:
        self.model = ScriptedRealtimeModel(steps, ms_per_word=MS_PER_WORD)
        return self.model

    def connection(self, number: int = -1) -> ScriptedConnection:
        return self.model.connections[number]

    def commands(self, connection: int = -1) -> list[str]:
        sent = [command for command in self.connection(connection).sent if not isinstance(command, AppendAudio)]
        return [
            _ROLES[type(each.message).__name__] if isinstance(each, AddItem) else _COMMANDS[type(each)] for each in sent
        ]

    def items(self, connection: int = -1) -> list[tuple[str, str]]:
        return _describe_items(self.connection(connection).items)

    def settings(self, connection: int = -1) -> tuple[str, list[str], str | None]:
        settings = self.connection(connection).settings
        return settings.instructions, [tool.name for tool in settings.tools], self.connection(connection).voice

    async def wait_for_command(self, command: str, nth: int = 1, *, connection: int = 0) -> None:
        await self.model.connection(connection + 1)
        kinds = {name: kind for kind, name in _COMMANDS.items()}
        await self.connection(connection).wait_for(kinds.get(command, AddItem))
        while self.commands(connection).count(command) < nth:
            sent = len(self.connection(connection).sent_of(kinds.get(command, AddItem)))
            await self.connection(connection).wait_for(kinds.get(command, AddItem), count=sent + 1)

    async def wait_for_connection(self, connection: int) -> None:
        await self.model.connection(connection + 1)

    async def start_speaking(self, session: RealtimeSession) -> None:
        self.connection().user_begins()

    async def finish_speaking(self, session: RealtimeSession, words: str) -> None:
        self.connection().user_ceases(words)

    async def cut(self) -> None:
        self.connection().cut()

    async def close_normally(self) -> None:
        self.connection().end()

    @property
    def connection_count(self) -> int:
        return len(self.model.connections)

    @property
    def complaints(self) -> Sequence[object]:
        return self.model.complaints

    async def close(self) -> None:
        for connection in self.model.connections:
            await connection.close()


_WIRE_COMMANDS = {
    "session.update": "configure",
    "input_audio_buffer.commit": "commit",
    "input_audio_buffer.clear": "clear",
    "response.create": "respond",
    "response.cancel": "cancel",
    "conversation.item.truncate": "truncate",
}
_WIRE_ROLES = {"function_call": "assistant", "function_call_output": "result"}


class WebSocketBackend:
    """A server that speaks OpenAI's format over a real websocket, used with the official SDK."""

    def __init__(self, **options: Any) -> None:
        self.server = OpenAIRealtimeServer([])
        self.transcripts: deque[str | BaseException] = deque()
        """The transcripts of the audio that is committed next."""
        self._options = options
        self._model: OpenAIRealtimeModel | None = None

    async def start(self, steps: Steps) -> OpenAIRealtimeModel:
        by: Callable[[ServedSession], str] | None = _agent_name if isinstance(steps, Mapping) else None
        options: dict[str, Any] = {"ms_per_word": MS_PER_WORD, **self._options}
        self.server = OpenAIRealtimeServer(cast("Any", steps), by=by, hears=self._next_transcripts(), **options)
        await self.server.__aenter__()
        self._model = OpenAIRealtimeModel(api_key=self.server.api_key, base_url=self.server.base_url, timeout=PATIENCE)
        return self._model

    def _next_transcripts(self) -> Iterator[str | BaseException]:
        while True:
            yield self.transcripts.popleft() if self.transcripts else ""

    def connection(self, number: int = -1) -> ServedSession:
        return self.server.sessions[number]

    def commands(self, connection: int = -1) -> list[str]:
        received = [each for each in self.connection(connection).received if each.type != "input_audio_buffer.append"]
        return [_command_name(each) for each in received[1:]]

    def items(self, connection: int = -1) -> list[tuple[str, str]]:
        return _describe_items(self.connection(connection).items)

    def settings(self, connection: int = -1) -> tuple[str, list[str], str | None]:
        settings = self.connection(connection).settings
        names = [tool["name"] for tool in settings["tools"]]
        return settings["instructions"], names, settings["audio"]["output"]["voice"]

    async def wait_for_command(self, command: str, nth: int = 1, *, connection: int = 0) -> None:
        session = await self.server.session(connection)
        kinds = {name: kind for kind, name in _WIRE_COMMANDS.items()}
        kind = kinds.get(command, "conversation.item.create")
        await session.until_received(kind)
        while self.commands(connection).count(command) < nth:
            received = [each for each in session.received if each.type == kind]
            await session.until_received(kind, len(received) + 1)

    async def wait_for_connection(self, connection: int) -> None:
        await self.server.session(connection)

    async def start_speaking(self, session: RealtimeSession) -> None:
        count = len([each for each in self.connection().sent if each.type == "input_audio_buffer.speech_started"])
        await session.send_audio(speech("hello", ms_per_word=MS_PER_WORD))
        await self.connection().until_sent("input_audio_buffer.speech_started", count + 1)

    async def finish_speaking(self, session: RealtimeSession, words: str) -> None:
        self.transcripts.append(words)
        await session.send_audio(speech(words, ms_per_word=MS_PER_WORD) + silence(600))

    async def cut(self) -> None:
        await self.connection().abort()

    async def close_normally(self) -> None:
        await self.connection().close(1000)

    @property
    def connection_count(self) -> int:
        return len(self.server.sessions)

    @property
    def complaints(self) -> Sequence[object]:
        return self.server.complaints

    async def close(self) -> None:
        if self._model is not None:
            await self._model.aclose()
        await self.server.__aexit__(None, None, None)


def _agent_name(session: ServedSession) -> str:
    return session.settings["instructions"].partition(":")[0]


def _command_name(recorded: RecordedEvent) -> str:
    if recorded.type != "conversation.item.create":
        return _WIRE_COMMANDS[recorded.type]
    item = recorded.event["item"]
    return _WIRE_ROLES.get(item["type"]) or item["role"]


def _describe_items(items: Sequence[ConversationItem]) -> list[tuple[str, str]]:
    return [(item.role, item.call_id or text_of(item.message.content)) for item in items]


async def unfinished_tasks() -> set[str]:
    """Return the names of Baton's tasks that have not ended after a few iterations of the event loop."""
    for _ in range(5):
        await asyncio.sleep(0)
    return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("baton")}
