"""Checks of what a model makes of its provider's answers."""

import asyncio

import msgspec

from ...messages import AssistantMessage, Reasoning, ToolMessage, ToolSpec, Usage, UserMessage, text_of
from ...models import Model, ModelRequest, OutputSchema, Response, TextChunk
from ..steps import Stream, call, say
from .bench import HELLO, ModelBench, P, answer_of, chunks_of, opened, request

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
AT_ONCE = 2.0
PATIENCE = 30.0
_LONG = "a rather long word " * 40


class AnswerChecks(ModelBench[P]):
    """Text, streaming, calls, structured output, usage, and what happens when the reader stops reading."""

    async def test_it_is_a_model_with_a_name(self) -> None:
        async with self.played() as (model, _):
            assert isinstance(model, Model)
            assert model.name

    async def test_text_arrives_as_it_is(self) -> None:
        text = 'Grüß Gott, 世界! 🎉\n\n  "quoted" \\ back\ttab\n'
        async with self.played(text) as (model, _):
            _, message = await answer_of(model)
        assert text_of(message.content) == text
        assert message.calls == ()

    async def test_an_answer_ends_with_one_response(self) -> None:
        async with self.played("Hello there, you.") as (model, _):
            chunks = await chunks_of(model)
        assert [index for index, chunk in enumerate(chunks) if isinstance(chunk, Response)] == [len(chunks) - 1]

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
            self.played(Stream("Hel", gate, "lo")) as (model, _),
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
        async with self.played(call("wave", times=3, why=_LONG)) as (model, _):
            _, message = await answer_of(model, request(tools=(WAVE,)))
        (only,) = message.calls
        assert (only.name, msgspec.json.decode(only.arguments)) == ("wave", {"times": 3, "why": _LONG})
        assert only.id

    async def test_calls_at_once_arrive_in_order_each_with_its_own_id(self) -> None:
        self.needs("parallel calls")
        async with self.played([call("wave", times=1), call("bow"), call("wave", times=2)]) as (model, _):
            _, message = await answer_of(model, request(tools=(WAVE, BOW)))
        calls = [(each.name, msgspec.json.decode(each.arguments)) for each in message.calls]
        assert calls == [("wave", {"times": 1}), ("bow", {}), ("wave", {"times": 2})]
        assert len({each.id for each in message.calls}) == 3

    async def test_text_beside_a_call_is_kept(self) -> None:
        async with self.played(say("One moment.", call("wave", times=1))) as (model, _):
            _, message = await answer_of(model, request(tools=(WAVE,)))
        assert text_of(message.content) == "One moment."
        assert [each.name for each in message.calls] == ["wave"]

    async def test_what_it_said_can_be_sent_back_with_the_results(self) -> None:
        thoughtful = AssistantMessage("Wait.", (call("wave", times=1),), (Reasoning("First, wave."),))
        async with self.played(thoughtful, "Done.") as (model, provider):
            _, said = await answer_of(model, request(tools=(WAVE,)))
            results = [ToolMessage(each.id, each.name, "waved") for each in said.calls]
            _, last = await answer_of(model, request((*HELLO, said, *results), tools=(WAVE,)))
        assert last.content == "Done."
        told = provider.understood[-1].messages
        assert [each.name for message in told if isinstance(message, AssistantMessage) for each in message.calls] == [
            "wave"
        ]
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
            _, message = await answer_of(model, request(output=OutputSchema("city", CITY)))
        assert msgspec.json.decode(text_of(message.content)) == {"city": "Rome"}
        wanted = provider.understood[-1].output
        assert wanted is not None
        assert wanted.schema["properties"]["city"]["type"].lower() == "string"

    async def test_usage_is_told(self) -> None:
        async with self.played(say("Hello.", usage=Usage(70, 5))) as (model, _):
            response, _ = await answer_of(model)
        assert response.usage is not None
        assert (response.usage.input_tokens, response.usage.output_tokens) == (70, 5)

    async def test_cached_tokens_are_told(self) -> None:
        self.needs("cached tokens")
        async with self.played(say("Hello.", usage=Usage(70, 5, cached_tokens=30))) as (model, _):
            response, _ = await answer_of(model)
        assert response.usage is not None
        # Whatever the provider counts them as, they are a part of the input here.
        assert (response.usage.input_tokens, response.usage.cached_tokens) == (70, 30)

    async def test_an_answer_that_ran_out_of_tokens_says_so(self) -> None:
        async with self.played(Response(AssistantMessage("So far"), stop_reason="length")) as (model, _):
            response, message = await answer_of(model)
        assert message.content == "So far"
        assert response.stop_reason == "length"

    async def test_closing_the_iterator_ends_the_call(self) -> None:
        async with self.played(Stream("Hel", asyncio.Event(), "lo")) as (model, provider):
            async with opened(model, request()) as chunks, asyncio.timeout(PATIENCE):
                await anext(chunks)
            await provider.client_left(within=AT_ONCE)

    async def test_cancelling_the_reader_ends_the_call(self) -> None:
        has_begun = asyncio.Event()

        async def read(model: Model) -> None:
            async with opened(model, request()) as chunks:
                async for _ in chunks:
                    has_begun.set()

        async with self.played(Stream("Hel", asyncio.Event(), "lo")) as (model, provider):
            reading = asyncio.create_task(read(model))
            async with asyncio.timeout(PATIENCE):
                await has_begun.wait()
            reading.cancel()
            outcomes = await asyncio.gather(reading, return_exceptions=True)
            assert isinstance(outcomes[0], asyncio.CancelledError)
            await provider.client_left(within=AT_ONCE)
