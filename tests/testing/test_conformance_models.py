"""The suite for models: one that is in order passes it, and each broken one trips the check that is meant for it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from batonkit.errors import ModelError, RateLimitError
from batonkit.messages import AssistantMessage, Text, ToolMessage, UserMessage
from batonkit.models import Chunk, Model, ModelRequest, ModelResponse, ModelSettings, TextChunk, ToolCallChunk
from batonkit.testing import ScriptedModel, ScriptStep
from batonkit.testing.conformance import ModelConformance


class FakeProvider:
    """A provider without HTTP that records the requests of a model and responses that are closed early."""

    def __init__(self, steps: Iterable[ScriptStep]) -> None:
        self.script = ScriptedModel(steps, stream=True)
        self._left = asyncio.Event()

    @property
    def understood(self) -> list[ModelRequest]:
        return self.script.requests

    async def client_left(self, within: float) -> None:
        try:
            await asyncio.wait_for(self._left.wait(), within)
        except TimeoutError:
            raise AssertionError("no client left") from None

    async def answer(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        has_ended = False
        try:
            async for chunk in self.script.respond(request):
                yield chunk
            has_ended = True
        finally:
            if not has_ended:
                self._left.set()


class Plain:
    """A model that passes everything on as it is."""

    name = "plain"

    def __init__(self, behind: FakeProvider) -> None:
        self.behind = behind

    def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        return self.behind.answer(request)


class Suite(ModelConformance[FakeProvider]):
    """The suite around one kind of model."""

    kind: type[Plain] = Plain

    @asynccontextmanager
    async def provider(self, steps: Iterable[ScriptStep]) -> AsyncGenerator[FakeProvider, None]:
        yield FakeProvider(steps)

    def model(self, provider: FakeProvider) -> Model:
        return self.kind(provider)


class TestAModelThatIsInOrder(Suite):
    """Every check passes."""


class DropsTheLastPiece(Plain):
    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        held: Chunk | None = None
        async for chunk in self.behind.answer(request):
            if held is not None and not (isinstance(held, TextChunk) and isinstance(chunk, ModelResponse)):
                yield held
            held = chunk
        if held is not None:
            yield held


class EndsTwice(Plain):
    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        async for chunk in self.behind.answer(request):
            yield chunk
        yield ModelResponse()


class WaitsForTheEnd(Plain):
    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        for chunk in [chunk async for chunk in self.behind.answer(request)]:
            yield chunk


class MixesUpCalls(Plain):
    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        async for chunk in self.behind.answer(request):
            yield ToolCallChunk(0, chunk.id, chunk.name, chunk.arguments) if isinstance(chunk, ToolCallChunk) else chunk


class LosesArguments(Plain):
    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        async for chunk in self.behind.answer(request):
            yield replace(chunk, arguments=chunk.arguments[:9]) if isinstance(chunk, ToolCallChunk) else chunk


class KeepsUsageToItself(Plain):
    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        async for chunk in self.behind.answer(request):
            yield replace(chunk, usage=None, stop_reason="") if isinstance(chunk, ModelResponse) else chunk


class LosesLogProbabilities(Plain):
    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        async for chunk in self.behind.answer(request):
            yield replace(chunk, logprobs=()) if isinstance(chunk, ModelResponse) else chunk


class NeverLetsGo(Plain):
    """A model that keeps reading in the background after its reader has stopped."""

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        pieces: asyncio.Queue[Chunk] = asyncio.Queue()

        async def pump() -> None:
            async for chunk in self.behind.answer(request):
                pieces.put_nowait(chunk)

        self.pumping = asyncio.create_task(pump())
        while True:
            chunk = await pieces.get()
            yield chunk
            if isinstance(chunk, ModelResponse):
                return

    async def aclose(self) -> None:
        self.pumping.cancel()


class RaisesWhatItLikes(Plain):
    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        try:
            async for chunk in self.behind.answer(request):
                yield chunk
        except ModelError as error:
            raise RuntimeError(str(error)) from error


class KnowsOneKindOfError(Plain):
    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        try:
            async for chunk in self.behind.answer(request):
                yield chunk
        except ModelError as error:
            raise RateLimitError("it failed", retryable=not error.retryable) from error


class SwallowsFailures(Plain):
    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        try:
            async for chunk in self.behind.answer(request):
                yield chunk
        except ModelError:
            yield ModelResponse()


class SaysNothingBeforeAFailure(Plain):
    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        for chunk in [chunk async for chunk in self.behind.answer(request)]:
            yield chunk


class Tells(Plain):
    """Passes on a request that was changed."""

    def changed(self, request: ModelRequest) -> ModelRequest:
        return request

    def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        return self.behind.answer(self.changed(request))


class TellsNoInstructions(Tells):
    def changed(self, request: ModelRequest) -> ModelRequest:
        return replace(request, instructions="")


class TellsNoTools(Tells):
    def changed(self, request: ModelRequest) -> ModelRequest:
        return replace(request, tools=())


class TellsNoSettings(Tells):
    def changed(self, request: ModelRequest) -> ModelRequest:
        return replace(request, settings=ModelSettings())


class TellsNoChoice(Tells):
    def changed(self, request: ModelRequest) -> ModelRequest:
        return replace(request, tool_choice=None)


class TellsNoSchema(Tells):
    def changed(self, request: ModelRequest) -> ModelRequest:
        return replace(request, output_schema=None)


class TellsNoPictures(Tells):
    def changed(self, request: ModelRequest) -> ModelRequest:
        def bare(message: Any) -> Any:
            if isinstance(message, UserMessage) and not isinstance(message.content, str):
                return UserMessage(tuple(part for part in message.content if isinstance(part, Text)))
            return message

        return replace(request, messages=tuple(map(bare, request.messages)))


class TellsNoResults(Tells):
    def changed(self, request: ModelRequest) -> ModelRequest:
        return replace(request, messages=tuple(m for m in request.messages if not isinstance(m, ToolMessage)))


class TellsNoThoughts(Tells):
    def changed(self, request: ModelRequest) -> ModelRequest:
        bare = [replace(m, reasoning=()) if isinstance(m, AssistantMessage) else m for m in request.messages]
        return replace(request, messages=tuple(bare))


class TellsTheNewestOnly(Tells):
    def changed(self, request: ModelRequest) -> ModelRequest:
        return replace(request, messages=request.messages[-1:])


class RewritesArguments(Tells):
    def changed(self, request: ModelRequest) -> ModelRequest:
        def bare(message: Any) -> Any:
            if not isinstance(message, AssistantMessage):
                return message
            return replace(message, tool_calls=tuple(replace(call, arguments='{"a":1}') for call in message.tool_calls))

        return replace(request, messages=tuple(map(bare, request.messages)))


class AnswersOnlyUsers(Tells):
    def changed(self, request: ModelRequest) -> ModelRequest:
        if not request.messages:
            raise IndexError("there is no last message")
        return request


class HasNoName(Plain):
    name = ""


BROKEN: list[tuple[type[Plain], Callable[[Suite], Awaitable[None]]]] = [
    (HasNoName, lambda suite: suite.test_it_is_a_model_with_a_name()),
    (DropsTheLastPiece, lambda suite: suite.test_text_arrives_as_it_is()),
    (DropsTheLastPiece, lambda suite: suite.test_it_answers_again_and_again()),
    (DropsTheLastPiece, lambda suite: suite.test_many_at_once_get_their_own_answers()),
    (EndsTwice, lambda suite: suite.test_an_answer_ends_with_one_response()),
    (MixesUpCalls, lambda suite: suite.test_calls_at_once_arrive_in_order_each_with_its_own_id()),
    (LosesArguments, lambda suite: suite.test_a_call_arrives_whole()),
    (DropsTheLastPiece, lambda suite: suite.test_structured_output_is_asked_for()),
    (TellsNoSchema, lambda suite: suite.test_structured_output_is_asked_for()),
    (TellsNoResults, lambda suite: suite.test_what_it_said_can_be_sent_back_with_the_results()),
    (TellsNoThoughts, lambda suite: suite.test_thoughts_are_kept_and_sent_back()),
    (KeepsUsageToItself, lambda suite: suite.test_usage_is_told()),
    (KeepsUsageToItself, lambda suite: suite.test_cached_tokens_are_told()),
    (KeepsUsageToItself, lambda suite: suite.test_an_answer_that_ran_out_of_tokens_says_so()),
    (NeverLetsGo, lambda suite: suite.test_closing_the_iterator_ends_the_call()),
    (NeverLetsGo, lambda suite: suite.test_cancelling_the_reader_ends_the_call()),
    (RaisesWhatItLikes, lambda suite: suite.test_a_lasting_failure_has_its_type_and_is_not_retryable(ModelError)),
    (KnowsOneKindOfError, lambda suite: suite.test_a_lasting_failure_has_its_type_and_is_not_retryable(ModelError)),
    (KnowsOneKindOfError, lambda suite: suite.test_a_passing_failure_has_its_type_and_is_retryable(RateLimitError)),
    (KnowsOneKindOfError, lambda suite: suite.test_a_failure_of_another_kind_is_a_model_error_to_retry()),
    (KnowsOneKindOfError, lambda suite: suite.test_when_to_come_again_is_told()),
    (KnowsOneKindOfError, lambda suite: suite.test_what_the_provider_says_is_in_the_error()),
    (KnowsOneKindOfError, lambda suite: suite.test_an_answer_that_does_not_come_in_time_is_a_timeout()),
    (SwallowsFailures, lambda suite: suite.test_an_answer_that_is_not_in_its_format_is_malformed()),
    (SwallowsFailures, lambda suite: suite.test_it_answers_after_a_failure()),
    (RaisesWhatItLikes, lambda suite: suite.test_nothing_at_all_is_empty()),
    (
        SaysNothingBeforeAFailure,
        lambda suite: suite.test_a_failure_in_the_middle_comes_after_what_was_said(RateLimitError),
    ),
    (SwallowsFailures, lambda suite: suite.test_an_answer_that_the_filter_stops_says_so()),
    (KnowsOneKindOfError, lambda suite: suite.test_a_failure_in_the_middle_comes_after_what_was_said(ModelError)),
    (TellsNoInstructions, lambda suite: suite.test_instructions_are_told()),
    (TellsNoTools, lambda suite: suite.test_tools_are_told()),
    (TellsNoSettings, lambda suite: suite.test_a_setting_is_sent_or_refused_by_name("temperature")),
    (TellsNoSettings, lambda suite: suite.test_settings_that_the_model_lacks_are_left_out_on_request()),
    (LosesLogProbabilities, lambda suite: suite.test_log_probabilities_are_returned(True)),
    (TellsNoChoice, lambda suite: suite.test_the_choice_of_a_tool_is_told("wave")),
    (TellsNoChoice, lambda suite: suite.test_the_choice_of_a_tool_is_told("none")),
    (TellsNoPictures, lambda suite: suite.test_media_are_told_as_they_are("images")),
    (TellsNoResults, lambda suite: suite.test_a_history_is_told_as_it_is("a call and its result")),
    (TellsTheNewestOnly, lambda suite: suite.test_a_history_is_told_as_it_is("several turns")),
    (TellsTheNewestOnly, lambda suite: suite.test_a_history_is_told_as_it_is("user twice")),
    (RewritesArguments, lambda suite: suite.test_a_history_is_told_as_it_is("two calls at once")),
    (TellsNoResults, lambda suite: suite.test_a_picture_in_a_result_is_taken()),
    (AnswersOnlyUsers, lambda suite: suite.test_no_history_at_all_is_taken()),
]


@pytest.mark.parametrize(("kind", "check"), BROKEN, ids=[kind.__name__ for kind, _ in BROKEN])
async def test_a_broken_model_trips_its_check(
    kind: type[Plain], check: Callable[[Suite], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batonkit.testing.conformance.model_checks.DISCONNECT_PATIENCE", 0.01)
    suite = Suite()
    suite.kind = kind
    with pytest.raises((AssertionError, pytest.fail.Exception, IndexError, RuntimeError, ModelError, ValueError)):
        await check(suite)


@pytest.mark.parametrize("check", [check for _, check in BROKEN])
async def test_a_correct_model_passes_all_checks(check: Callable[[Suite], Awaitable[None]]) -> None:
    await check(Suite())


async def test_a_model_that_waits_for_the_end_does_not_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonkit.testing.conformance.model_checks.PATIENCE", 0.05)
    suite = Suite()
    suite.kind = WaitsForTheEnd
    with pytest.raises(TimeoutError):
        await suite.test_pieces_arrive_before_the_answer_is_all_there()


async def test_checks_of_unsupported_features_are_skipped_with_a_reason() -> None:
    class Modest(Suite):
        cannot = frozenset({"images"})

    with pytest.raises(pytest.skip.Exception, match="Modest says that it cannot do: images"):
        await Modest().test_media_are_told_as_they_are("images")


def test_an_ability_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(TypeError, match="telepathy"):

        class Boastful(Suite):  # pyright: ignore[reportUnusedClass]
            cannot = frozenset({"telepathy"})
