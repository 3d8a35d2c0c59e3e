"""The conformance suite for realtime models."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeVar

import pytest

from ...errors import ModelConnectionError, OverloadedError, SetupError
from ...messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage, ToolSpec, Usage, UserMessage
from ...realtime.protocol import (
    AddItem,
    AppendAudio,
    AudioChunk,
    AudioCommitted,
    AudioEnded,
    CancelResponse,
    ClearAudio,
    Command,
    CommitAudio,
    ConfigureSession,
    CreateResponse,
    ItemAdded,
    ItemTruncated,
    ProviderErrorReceived,
    RealtimeConnection,
    RealtimeModel,
    ResponseEnded,
    ResponseStarted,
    SessionConfigured,
    SessionReady,
    Signal,
    TranscriptChunk,
    TranscriptionCompleted,
    TruncateItem,
)
from ...realtime.voice_settings import RealtimeSettings, SessionConfig, bytes_for
from ..scripted import ScriptedStream, ScriptStep, call, say
from .bench import Bench, close_model

SPOKEN = SessionConfig("Tester", "Be kind.", settings=RealtimeSettings(turn_detection=None))
"""A spoken session without turn detection."""
WRITTEN = SessionConfig("Tester", "Be kind.", settings=RealtimeSettings(modality="text", turn_detection=None))
_PATIENCE = 60.0


class RealtimeProvider(Protocol):
    """The provider behind the model under test, which plays the script."""

    @property
    def complaints(self) -> Sequence[object]:
        """The commands that it rejected."""
        ...


P = TypeVar("P", bound=RealtimeProvider)
S = TypeVar("S", bound=Signal)


class ConversationProbe:
    """One session, with every signal that was read."""

    def __init__(self, connection: RealtimeConnection) -> None:
        self.connection = connection
        self.signals: list[Signal] = []
        self._coming: AsyncIterator[Signal] = aiter(connection)

    async def send(self, *commands: Command) -> None:
        """Send commands in order."""
        for command in commands:
            await self.connection.send(command)

    async def until(self, kind: type[S], nth: int = 1) -> S:
        """Wait for the nth signal of a type; raises AssertionError if it does not come."""
        try:
            async with asyncio.timeout(_PATIENCE):
                while len(found := self.all(kind)) < nth:
                    self.signals.append(await anext(self._coming))
        except (TimeoutError, StopAsyncIteration):
            there = ", ".join(type(signal).__name__ for signal in self.signals)
            raise AssertionError(f"there was no {nth}. {kind.__name__}; there were: {there}") from None
        return found[nth - 1]

    async def to_the_end(self) -> None:
        """Read the remaining signals."""
        async with asyncio.timeout(_PATIENCE):
            async for signal in self._coming:
                self.signals.append(signal)

    async def respond(self, nth: int = 1) -> ResponseEnded:
        """Request the nth response and wait for its end."""
        await self.send(CreateResponse())
        return await self.until(ResponseEnded, nth)

    def all(self, kind: type[S]) -> list[S]:
        """Return the signals of a type so far."""
        return [signal for signal in self.signals if isinstance(signal, kind)]


class RealtimeBench(Bench[P, RealtimeModel]):
    """The methods that the author of a realtime model implements."""

    @abstractmethod
    def provider(self, steps: Iterable[ScriptStep], hears: Iterable[str]) -> AbstractAsyncContextManager[P]:
        """Create a provider that plays these steps, one for each response."""

    @asynccontextmanager
    async def talking(
        self, *steps: ScriptStep, settings: SessionConfig = SPOKEN, hears: Iterable[str] = (), is_in_order: bool = True
    ) -> AsyncGenerator[ConversationProbe, None]:
        """Open a session whose provider plays these steps; it must not reject a command."""
        async with self.provider(steps, hears) as provider:
            model = self.model(provider)
            connection = await model.connect(settings)
            try:
                yield ConversationProbe(connection)
            finally:
                await connection.close()
                await close_model(model)
            if is_in_order:
                assert list(provider.complaints) == []


__all__ = ["REALTIME_CAPABILITIES", "RealtimeConformance", "RealtimeProvider"]

REALTIME_CAPABILITIES = frozenset({"audio", "transcription", "truncation"})
"""Capabilities that a realtime model may lack; everything else is required."""
_A_SECOND = b"\0" * bytes_for(1000, "pcm16")


class _AnswerChecks(RealtimeBench[P]):
    async def test_a_conversation_begins_with_its_session(self) -> None:
        async with self.talking("Hello.") as talking:
            await talking.respond()
        assert isinstance(talking.signals[0], SessionReady)
        assert talking.all(SessionConfigured) == []

    async def test_a_spoken_answer_has_sound_and_words(self) -> None:
        self.needs("audio")
        async with self.talking("Good day to you.") as talking:
            await talking.send(AddItem(UserMessage("Hello"), "item_hello"), CreateResponse())
            ended = await talking.until(ResponseEnded)
        kinds = [type(signal) for signal in talking.signals]
        started = talking.all(ResponseStarted)[0]
        sound = talking.all(AudioChunk)
        words = talking.all(TranscriptChunk)
        assert (ended.response_id, ended.status) == (started.response_id, "completed")
        assert kinds.index(ResponseStarted) < kinds.index(AudioChunk) < kinds.index(AudioEnded)
        assert all(chunk.audio for chunk in sound)
        assert all(chunk.is_spoken for chunk in words)
        assert "".join(chunk.text for chunk in words) == ended.message.content == "Good day to you."
        where = {(chunk.response_id, chunk.item_id, chunk.content_index) for chunk in (*sound, *words)}
        (end,) = talking.all(AudioEnded)
        assert where == {(end.response_id, end.item_id, end.content_index)}
        assert ended.item_ids == (end.item_id,)
        assert kinds[-1] is ResponseEnded

    async def test_a_written_answer_has_only_words(self) -> None:
        async with self.talking("Good day.", settings=WRITTEN) as talking:
            ended = await talking.respond()
        assert talking.all(AudioChunk) == []
        assert not any(chunk.is_spoken for chunk in talking.all(TranscriptChunk))
        assert "".join(chunk.text for chunk in talking.all(TranscriptChunk)) == ended.message.content == "Good day."

    async def test_calls_come_whole_and_in_order(self) -> None:
        step = say("A moment.", call("f", a=1, b="zwei"), call("g"), usage=Usage(30, 5))
        async with self.talking(step, "Done.") as talking:
            ended = await talking.respond()
            first, second = ended.message.tool_calls
            results = [AddItem(ToolMessage(each.id, each.name, "1"), f"item_{each.name}") for each in (second, first)]
            await talking.send(*results, CreateResponse())
            assert (await talking.until(ResponseEnded, 2)).message.content == "Done."
        assert (first.name, first.arguments, second.name) == ("f", '{"a":1,"b":"zwei"}', "g")
        assert "" not in (first.id, second.id)
        assert first.id != second.id
        assert ended.message.content == "A moment."
        assert ended.usage is not None
        assert (ended.usage.input_tokens, ended.usage.output_tokens) == (30, 5)
        assert talking.all(ItemAdded) == [
            ItemAdded("item_g", "result", second.id),
            ItemAdded("item_f", "result", first.id),
        ]

    async def test_a_response_that_fails_says_so_and_the_next_one_does_not(self) -> None:
        async with self.talking(OverloadedError("too much"), "Hello.") as talking:
            failed = await talking.respond()
            assert (failed.status, failed.error) == ("failed", "too much")
            assert (await talking.respond(2)).status == "completed"

    async def test_a_response_can_be_stopped(self) -> None:
        async with self.talking(ScriptedStream("One ", asyncio.Event(), "two."), "Hello.") as talking:
            await talking.send(CreateResponse())
            await talking.until(TranscriptChunk)
            await talking.send(CancelResponse(talking.all(ResponseStarted)[0].response_id))
            ended = await talking.until(ResponseEnded)
            assert (ended.status, ended.message) == ("cancelled", AssistantMessage("One "))
            assert (await talking.respond(2)).message.content == "Hello."


class _CommandChecks(RealtimeBench[P]):
    async def test_a_history_is_taken_item_by_item(self) -> None:
        calls = (ToolCall("call_a", "f", "{}"), ToolCall("call_b", "g", '{"a":1}'))
        history = (
            SystemMessage("Be brief."),
            UserMessage("Hello"),
            AssistantMessage("A moment.", calls),
            ToolMessage("call_a", "f", "one"),
            ToolMessage("call_b", "g", "two", is_error=True),
            AssistantMessage("Done."),
        )
        async with self.talking("Yes?") as talking:
            await talking.send(*[AddItem(message, f"item_{number}") for number, message in enumerate(history)])
            await talking.respond()
        added = talking.all(ItemAdded)
        assert {f"item_{number}" for number in range(len(history))} <= {item.item_id for item in added}
        results = [(item.item_id, item.call_id) for item in added if item.role == "result"]
        assert results == [("item_3", "call_a"), ("item_4", "call_b")]

    async def test_settings_change_in_the_middle(self) -> None:
        other = SessionConfig("Other", "Be brief.", (ToolSpec("f", "Does it."),), settings=SPOKEN.settings)
        async with self.talking("One.", "Two.") as talking:
            await talking.respond()
            await talking.send(ConfigureSession(other, changes_voice=False))
            await talking.until(SessionConfigured)
            await talking.respond(2)
        assert len(talking.all(SessionConfigured)) == 1

    async def test_what_the_user_says_is_committed_and_written_down(self) -> None:
        self.needs("transcription")
        async with self.talking(hears=["Hello there"]) as talking:
            await talking.send(AppendAudio(_A_SECOND), ClearAudio(), AppendAudio(_A_SECOND), CommitAudio())
            heard = await talking.until(TranscriptionCompleted)
            assert heard == TranscriptionCompleted((await talking.until(AudioCommitted)).item_id, "Hello there")
        assert talking.all(ResponseStarted) == []

    async def test_what_was_not_heard_is_forgotten(self) -> None:
        self.needs("truncation")
        async with self.talking("One two three four.") as talking:
            await talking.respond()
            item_id = talking.all(AudioChunk)[0].item_id
            await talking.send(TruncateItem(item_id, 0, 100))
            assert await talking.until(ItemTruncated) == ItemTruncated(item_id, 100)

    async def test_a_second_request_is_trouble_and_the_first_is_answered(self) -> None:
        gate = asyncio.Event()
        async with self.talking(ScriptedStream("One ", gate, "two."), is_in_order=False) as talking:
            await talking.send(CreateResponse(id="first"))
            await talking.until(TranscriptChunk)
            await talking.send(CreateResponse(id="second"))
            assert (await talking.until(ProviderErrorReceived)).command_id == "second"
            gate.set()
            assert (await talking.until(ResponseEnded)).message.content == "One two."

    async def test_a_result_that_nobody_asked_for_is_trouble(self) -> None:
        async with self.talking("Hello.", is_in_order=False) as talking:
            await talking.send(AddItem(ToolMessage("call_unknown", "f", "1"), "item_1", id="lonely"))
            assert (await talking.until(ProviderErrorReceived)).command_id == "lonely"
            await talking.respond()
        assert talking.all(ItemAdded) == []


class _EndChecks(RealtimeBench[P]):
    async def test_a_cut_is_raised_and_nothing_can_be_sent(self) -> None:
        async with self.talking(ScriptedStream("One ", ModelConnectionError("cut", retryable=True))) as talking:
            await talking.send(CreateResponse())
            with pytest.raises(ModelConnectionError) as raised:
                await talking.to_the_end()
            assert raised.value.retryable
            assert [chunk.text for chunk in talking.all(TranscriptChunk)] == ["One "]
            with pytest.raises(ModelConnectionError):
                await talking.send(AddItem(UserMessage("Hello"), "item_1"))

    async def test_closing_ends_the_signals_and_may_be_done_twice(self) -> None:
        async with self.talking(ScriptedStream("One ", asyncio.Event())) as talking:
            await talking.send(CreateResponse())
            await talking.until(TranscriptChunk)
            reading = asyncio.create_task(talking.to_the_end())
            await talking.connection.close()
            await talking.connection.close()
            await reading
        assert talking.all(ResponseEnded) == []

    async def test_conversations_do_not_mix(self) -> None:
        async with self.provider(["One.", "Two."], ()) as provider:
            model = self.model(provider)
            first = await model.connect(SPOKEN)
            second = await model.connect(SPOKEN)
            answers: list[object] = []
            for connection in (first, second):
                async with asyncio.timeout(_PATIENCE):
                    await connection.send(CreateResponse())
                    async for signal in connection:
                        if isinstance(signal, ResponseEnded):
                            answers.append(signal.message.content)
                            break
            await asyncio.gather(first.close(), second.close())
        assert answers == ["One.", "Two."]

    async def test_it_is_a_realtime_model_and_checks_settings(self) -> None:
        async with self.provider((), ()) as provider:
            model = self.model(provider)
            assert isinstance(model, RealtimeModel)
            assert model.name
            model.check(SPOKEN)
            with pytest.raises(SetupError, match="Tester"):
                model.check(SessionConfig("Tester", tools=(ToolSpec("f"), ToolSpec("f"))))


class RealtimeConformance(_AnswerChecks[P], _CommandChecks[P], _EndChecks[P]):
    """The suite: subclass it in a test file and implement `provider` and `model`."""

    capabilities = REALTIME_CAPABILITIES
