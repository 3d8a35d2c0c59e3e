"""The conformance suite for models."""

import asyncio
from typing import Any, ClassVar

import msgspec
import pytest

from ...errors import (
    AuthenticationError,
    ContentFilterError,
    ContextTooLongError,
    EmptyResponseError,
    MalformedResponseError,
    ModelConnectionError,
    ModelError,
    ModelNotFoundError,
    ModelRequestError,
    ModelTimeoutError,
    OverloadedError,
    RateLimitError,
)
from ...messages import (
    AssistantMessage,
    Image,
    Reasoning,
    SystemMessage,
    Text,
    TokenLogprob,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
    is_empty,
    text_of,
)
from ...models import Chunk, Model, ModelRequest, ModelResponse, ModelSettings, OutputSchema, TextChunk
from ..scripted import ScriptedStream, call, say
from .model_bench import (
    HELLO,
    HISTORIES,
    MEDIA,
    ModelBench,
    ModelProvider,
    P,
    answer_of,
    chunks_of,
    essence,
    opened,
    request,
    says_the_same,
)

WAVE = ToolSpec(
    "wave", "Wave a hand.", {"type": "object", "properties": {"times": {"type": "integer"}}, "required": ["times"]}
)
BOW = ToolSpec("bow", "Bow.")
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
PATIENCE = 60.0
"""Seconds to wait for what comes at once from a model that is in order."""
DISCONNECT_PATIENCE = PATIENCE
"""Seconds to wait for a model to disconnect."""
_LONG = "a rather long word " * 40


class AnswerChecks(ModelBench[P]):
    """Text, streaming, calls, structured output, usage, and readers that stop early."""

    async def test_it_is_a_model_with_a_name(self) -> None:
        async with self.played() as (model, _):
            assert isinstance(model, Model)
            assert model.name

    async def test_text_arrives_as_it_is(self) -> None:
        text = 'Grüß Gott, 世界! 🎉\n\n  "quoted" \\ back\ttab\n'
        _, message = await self.answer_to(text)
        assert text_of(message.content) == text
        assert message.tool_calls == ()

    async def test_an_answer_ends_with_one_response(self) -> None:
        async with self.played("Hello there, you.") as (model, _):
            chunks = await chunks_of(model)
        assert [index for index, chunk in enumerate(chunks) if isinstance(chunk, ModelResponse)] == [len(chunks) - 1]

    async def test_it_answers_again_and_again(self) -> None:
        async with self.played("One.", "Two.", "Three.") as (model, _):
            said = [(await answer_of(model))[1].content for _ in range(3)]
        assert said == ["One.", "Two.", "Three."]

    async def test_many_at_once_get_their_own_answers(self) -> None:
        def echo(asked: ModelRequest) -> str:
            return f"You said {text_of(asked.messages[-1].content)}"

        async with self.played(*[echo] * 12) as (model, _):
            asked = [request((UserMessage(f"number {number}"),)) for number in range(12)]
            answers = await asyncio.gather(*[answer_of(model, each) for each in asked])
        assert [message.content for _, message in answers] == [f"You said number {number}" for number in range(12)]

    async def test_pieces_arrive_before_the_answer_is_all_there(self) -> None:
        self.needs("streaming")
        gate = asyncio.Event()
        async with (
            self.played(ScriptedStream("Hel", gate, "lo")) as (model, _),
            opened(model, request()) as chunks,
            asyncio.timeout(PATIENCE),
        ):
            first = await anext(chunks)
            while not (isinstance(first, TextChunk) and first.text):
                first = await anext(chunks)
            gate.set()
            rest = [chunk async for chunk in chunks]
        assert first.text == "Hel"
        assert "".join([chunk.text for chunk in rest if isinstance(chunk, TextChunk)]) == "lo"

    async def test_a_call_arrives_whole(self) -> None:
        _, message = await self.answer_to(call("wave", times=3, why=_LONG), tools=(WAVE,))
        (only,) = message.tool_calls
        assert (only.name, msgspec.json.decode(only.arguments)) == ("wave", {"times": 3, "why": _LONG})
        assert only.id

    async def test_calls_at_once_arrive_in_order_each_with_its_own_id(self) -> None:
        self.needs("parallel calls")
        step = [call("wave", times=1), call("bow"), call("wave", times=2)]
        _, message = await self.answer_to(step, tools=(WAVE, BOW))
        calls = [(each.name, msgspec.json.decode(each.arguments)) for each in message.tool_calls]
        assert calls == [("wave", {"times": 1}), ("bow", {}), ("wave", {"times": 2})]
        assert len({each.id for each in message.tool_calls}) == 3

    async def test_text_beside_a_call_is_kept(self) -> None:
        _, message = await self.answer_to(say("One moment.", call("wave", times=1)), tools=(WAVE,))
        assert text_of(message.content) == "One moment."
        assert [each.name for each in message.tool_calls] == ["wave"]

    async def test_what_it_said_can_be_sent_back_with_the_results(self) -> None:
        thoughtful = AssistantMessage("Wait.", (call("wave", times=1),), (Reasoning("First, wave."),))
        async with self.played(thoughtful, "Done.") as (model, provider):
            _, said = await answer_of(model, request(tools=(WAVE,)))
            results = [ToolMessage(each.id, each.name, "waved") for each in said.tool_calls]
            _, last = await answer_of(model, request((*HELLO, said, *results), tools=(WAVE,)))
        assert last.content == "Done."
        told = provider.understood[-1].messages
        assert [
            each.name for message in told if isinstance(message, AssistantMessage) for each in message.tool_calls
        ] == ["wave"]
        assert [text_of(message.content) for message in told if isinstance(message, ToolMessage)] == ["waved"]

    async def test_thoughts_are_kept_and_sent_back(self) -> None:
        self.needs("reasoning")
        thoughtful = AssistantMessage("Yes.", reasoning=(Reasoning("Let me think."),))
        async with self.played(thoughtful, "Done.") as (model, provider):
            _, said = await answer_of(model)
            assert said.reasoning
            await answer_of(model, request((*HELLO, said, UserMessage("Go on."))))
        told = provider.understood[-1].messages
        assert [message.reasoning for message in told if isinstance(message, AssistantMessage)] != [()]

    async def test_structured_output_is_asked_for(self) -> None:
        self.needs("structured output")
        async with self.played('{"city":"Rome"}') as (model, provider):
            _, message = await answer_of(model, request(output_schema=OutputSchema("city", CITY)))
        assert msgspec.json.decode(text_of(message.content)) == {"city": "Rome"}
        wanted = provider.understood[-1].output_schema
        assert wanted is not None
        assert wanted.schema["properties"]["city"]["type"].lower() == "string"

    async def test_usage_is_told(self) -> None:
        response, _ = await self.answer_to(say("Hello.", usage=Usage(70, 5)))
        assert response.usage is not None
        assert (response.usage.input_tokens, response.usage.output_tokens) == (70, 5)

    async def test_cached_tokens_are_told(self) -> None:
        self.needs("cached tokens")
        response, _ = await self.answer_to(say("Hello.", usage=Usage(70, 5, cached_tokens=30)))
        assert response.usage is not None
        # Cached tokens are part of the input, however the provider counts them.
        assert (response.usage.input_tokens, response.usage.cached_tokens) == (70, 30)

    async def test_an_answer_that_ran_out_of_tokens_says_so(self) -> None:
        response, message = await self.answer_to(ModelResponse(AssistantMessage("So far"), stop_reason="length"))
        assert message.content == "So far"
        assert response.stop_reason == "length"

    async def test_closing_the_iterator_ends_the_call(self) -> None:
        async with self.played(ScriptedStream("Hel", asyncio.Event(), "lo")) as (model, provider):
            async with opened(model, request()) as chunks, asyncio.timeout(PATIENCE):
                await anext(chunks)
            await provider.client_left(within=DISCONNECT_PATIENCE)

    async def test_cancelling_the_reader_ends_the_call(self) -> None:
        has_begun = asyncio.Event()

        async def read(model: Model) -> None:
            async with opened(model, request()) as chunks:
                async for _ in chunks:
                    has_begun.set()

        async with self.played(ScriptedStream("Hel", asyncio.Event(), "lo")) as (model, provider):
            reading = asyncio.create_task(read(model))
            async with asyncio.timeout(PATIENCE):
                await has_begun.wait()
            reading.cancel()
            outcomes = await asyncio.gather(reading, return_exceptions=True)
            assert isinstance(outcomes[0], asyncio.CancelledError)
            await provider.client_left(within=DISCONNECT_PATIENCE)


LASTING = (AuthenticationError, ModelNotFoundError, ModelRequestError, ContextTooLongError, ContentFilterError)
"""Errors that another attempt would repeat."""
PASSING = (RateLimitError, OverloadedError, ModelConnectionError)
"""Errors that another attempt may avoid."""


class FailureChecks(ModelBench[P]):
    """Every failure has its own type and says whether it is retryable."""

    soon: ClassVar[float] = 0.05
    """The timeout used where the provider never responds."""

    @pytest.mark.parametrize("kind", LASTING)
    async def test_a_lasting_failure_has_its_type_and_is_not_retryable(self, kind: type[ModelError]) -> None:
        failure = await self.failure_of(kind("it failed on purpose"))
        assert type(failure) is kind
        assert not failure.retryable

    @pytest.mark.parametrize("kind", PASSING)
    async def test_a_passing_failure_has_its_type_and_is_retryable(self, kind: type[ModelError]) -> None:
        failure = await self.failure_of(kind("it failed on purpose", retryable=True))
        assert type(failure) is kind
        assert failure.retryable

    async def test_a_failure_of_another_kind_is_a_model_error_to_retry(self) -> None:
        failure = await self.failure_of(ModelError("something broke", retryable=True))
        assert failure.retryable

    async def test_when_to_come_again_is_told(self) -> None:
        failure = await self.failure_of(RateLimitError("slow down", retryable=True, retry_after=7))
        assert isinstance(failure, RateLimitError)
        assert failure.retry_after == 7

    async def test_what_the_provider_says_is_in_the_error(self) -> None:
        failure = await self.failure_of(ModelRequestError("a very special reason"))
        assert isinstance(failure, ModelRequestError)
        assert "a very special reason" in str(failure)

    async def test_an_answer_that_does_not_come_in_time_is_a_timeout(self) -> None:
        async with self.played("Hello.", ModelTimeoutError("too slow", retryable=True)) as (model, _):
            # This opens the connection; a failure to open one in time is of another kind.
            await answer_of(model, request())
            with pytest.raises(ModelTimeoutError) as raised:
                await asyncio.wait_for(chunks_of(model, request(settings=ModelSettings(timeout=self.soon))), PATIENCE)
        assert raised.value.retryable

    async def test_an_answer_that_is_not_in_its_format_is_malformed(self) -> None:
        failure = await self.failure_of(MalformedResponseError("<html>no</html>"))
        assert isinstance(failure, MalformedResponseError)

    @pytest.mark.parametrize("kind", [ModelConnectionError, OverloadedError, MalformedResponseError])
    async def test_a_failure_in_the_middle_comes_after_what_was_said(self, kind: type[ModelError]) -> None:
        self.needs("streaming")
        retryable = kind in PASSING
        seen: list[Chunk] = []
        failure = await self.failure_of(ScriptedStream("So ", "far", kind("{broken", retryable=retryable)), seen)
        assert "".join([chunk.text for chunk in seen if isinstance(chunk, TextChunk)]) == "So far"
        assert type(failure) is kind
        assert failure.retryable or not retryable

    async def test_an_answer_that_the_filter_stops_says_so(self) -> None:
        """A cut-off response ends with an error or a stop reason, never as if it were complete."""
        self.needs("streaming")
        try:
            response, _ = await self.answer_to(ScriptedStream("So ", "far", ContentFilterError("no more")))
        except ContentFilterError:
            return
        assert response.stop_reason == "content_filter"

    async def test_nothing_at_all_is_empty(self) -> None:
        try:
            _, message = await self.answer_to(EmptyResponseError("nothing", retryable=True))
        except EmptyResponseError:
            return
        assert is_empty(message)

    async def test_it_answers_after_a_failure(self) -> None:
        steps = (ModelConnectionError("cut", retryable=True), OverloadedError("busy", retryable=True), "Here I am.")
        async with self.played(*steps) as (model, _):
            for kind in (ModelConnectionError, OverloadedError):
                with pytest.raises(kind):
                    await chunks_of(model)
            _, message = await answer_of(model)
        assert text_of(message.content) == "Here I am."


LOGPROBS = (
    TokenLogprob("Yes", -0.25, (TokenLogprob("Yes", -0.25), TokenLogprob("No", -1.5))),
    TokenLogprob(".", -0.5, (TokenLogprob(".", -0.5), TokenLogprob("!", -1.0))),
)
SETTINGS: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.25,
    "max_tokens": 123,
    "stop_sequences": ("END", "STOP"),
    "seed": 7,
    "parallel_tool_calls": False,
    "reasoning_effort": "low",
    "top_k": 40,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "verbosity": "low",
    "truncation": "auto",
    "logprobs": True,
    "top_logprobs": 2,
    "metadata": {"user_id": "u42"},
    "service_tier": "auto",
}


class RequestChecks(ModelBench[P]):
    """Histories, instructions, tools and settings reach the provider completely."""

    @pytest.mark.parametrize("name", HISTORIES)
    async def test_a_history_is_told_as_it_is(self, name: str) -> None:
        await self._check_history(name)

    @pytest.mark.parametrize("name", MEDIA)
    async def test_media_are_told_as_they_are(self, name: str) -> None:
        self.needs(name)
        await self._check_history(name)

    async def _check_history(self, name: str) -> None:
        history = (HISTORIES | MEDIA)[name]
        understood = (await self.understood(history, tools=(WAVE, BOW))).messages
        assert says_the_same(understood, history), f"told: {essence(history)}\nunderstood: {essence(understood)}"

    async def test_no_history_at_all_is_taken(self) -> None:
        await self.understood(())

    async def test_a_picture_in_a_result_is_taken(self) -> None:
        self.needs("images")
        (told,) = MEDIA["images"]
        (picture,) = [part for part in told.content if isinstance(part, Image)]
        called = AssistantMessage(tool_calls=(ToolCall("call_1", "wave", '{"times":1}'),))
        history = (*HELLO, called, ToolMessage("call_1", "wave", (Text("see this"), picture)))
        understood = await self.understood(history, tools=(WAVE,))
        assert "see this" in str([text_of(each.content) for each in understood.messages])

    async def test_instructions_are_told(self) -> None:
        asked = await self.understood(instructions="Always rhyme.")
        told = [text_of(each.content) for each in asked.messages if isinstance(each, SystemMessage | UserMessage)]
        assert "Always rhyme." in "\n".join([asked.instructions, *told])

    async def test_no_instructions_are_no_trouble(self) -> None:
        assert (await self.understood(instructions="")).instructions == ""

    async def test_tools_are_told(self) -> None:
        tools = (await self.understood(tools=(WAVE, BOW))).tools
        assert [(tool.name, tool.description) for tool in tools] == [("wave", "Wave a hand."), ("bow", "Bow.")]
        properties = tools[0].parameters["properties"]
        assert properties["times"]["type"].lower() == "integer"
        assert tools[0].parameters["required"] == ["times"]

    @pytest.mark.parametrize("name", SETTINGS)
    async def test_a_setting_is_sent_or_refused_by_name(self, name: str) -> None:
        settings = ModelSettings(**{name: SETTINGS[name]})
        if name in self.cannot:
            with pytest.raises(ModelRequestError, match=name):
                await self.understood(settings=settings, tools=(WAVE,))
            return
        understood = await self.understood(settings=settings, tools=(WAVE,))
        assert getattr(understood.settings, name) == SETTINGS[name]

    async def test_settings_that_the_model_lacks_are_left_out_on_request(self) -> None:
        settings = ModelSettings(**SETTINGS, ignore_unsupported=True)
        understood = await self.understood(settings=settings, tools=(WAVE,))
        sent = [name for name in SETTINGS if getattr(understood.settings, name) is not None]
        assert sent == [name for name in SETTINGS if name not in self.cannot]

    @pytest.mark.parametrize("stream", [False, True])
    async def test_log_probabilities_are_returned(self, stream: bool) -> None:
        self.needs("top_logprobs")
        step = ModelResponse(AssistantMessage("Yes."), logprobs=LOGPROBS)
        response, _ = await self.answer_to(step, stream=stream, settings=ModelSettings(top_logprobs=2))
        assert response.logprobs == LOGPROBS

    @pytest.mark.parametrize("choice", ["auto", "required", "none", "wave"])
    async def test_the_choice_of_a_tool_is_told(self, choice: str) -> None:
        self.needs("tool_choice")
        asked = await self.understood(tool_choice=choice, tools=(WAVE, BOW))
        # Providers without such a setting express "none" by sending no tools and "auto" by sending nothing.
        assert asked.tool_choice in {"auto": ("auto", None), "none": ("none", None)}.get(choice, (choice,))
        assert choice != "none" or asked.tool_choice == "none" or not asked.tools

    @pytest.mark.parametrize("name", ["tool_choice", "parallel_tool_calls"])
    async def test_settings_about_tools_are_no_trouble_without_tools(self, name: str) -> None:
        settings = ModelSettings(parallel_tool_calls=True if name == "parallel_tool_calls" else None)
        await self.understood(settings=settings, tool_choice="auto" if name == "tool_choice" else None)


__all__ = ["MODEL_CAPABILITIES", "ModelConformance", "ModelProvider"]

MODEL_CAPABILITIES = frozenset(
    {
        *("streaming", "parallel calls", "reasoning", "structured output", "cached tokens"),
        *("images", "image urls", "files", "tool_choice", *SETTINGS),
    }
)
"""Capabilities that a model may lack; everything else is required."""


class ModelConformance(AnswerChecks[P], FailureChecks[P], RequestChecks[P]):
    """The suite: subclass it in a test file and implement `provider` and `model`."""

    capabilities = MODEL_CAPABILITIES
