"""Decoding with the smallest real model: constraints, stopping, token counts."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.models.local.scripted_engine import GET_WEATHER, call_in, make_request, read_response, text_in

from batonkit.errors import ContextTooLongError, ModelRequestError, WeightsError
from batonkit.messages import UserMessage
from batonkit.models import ModelResponse, ModelSettings, OutputSchema
from batonkit.models.local import LocalModel
from batonkit.models.local.engine import DecodeJob, DecodeResult, LlamaDecoder, PromptTurn

pytestmark = pytest.mark.timeout(180)  # The weights may have to be downloaded first, and the machine may be busy.


def _decode(
    engine: LlamaDecoder, job: DecodeJob, *, stop_after: int | None = None
) -> tuple[Sequence[str], DecodeResult]:
    texts: list[str] = []

    def on_text(text: str) -> bool:
        texts.append(text)
        return len(texts) == stop_after

    result = engine.decode(job, on_text)
    return [text for text in texts if text], result


def _job(prompt: str, **options: Any) -> DecodeJob:
    fields: dict[str, Any] = {"kind": "speak", "max_tokens": 12, **options}
    return DecodeJob(turns=(PromptTurn("user", prompt),), **fields)


def test_the_output_is_one_of_the_choices(engine: LlamaDecoder) -> None:
    texts, result = _decode(engine, _job("Sing!", kind="choose", choices=('say "no"', "沉默\\")))
    assert "".join(texts) in ('say "no"', "沉默\\")
    assert result.stop_reason == "stop"


def test_the_output_follows_the_schema(engine: LlamaDecoder) -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"mood": {"$ref": "#/$defs/Mood"}, "count": {"type": "integer"}},
        "required": ["mood", "count"],
        "additionalProperties": False,
        "$defs": {"Mood": {"type": "string", "enum": ["good", "bad"]}},
    }
    texts, _ = _decode(engine, _job("How are you?", kind="fill", schema=schema, max_tokens=40))
    written = msgspec.json.decode("".join(texts))
    assert set(written) == {"mood", "count"}
    assert written["mood"] in ("good", "bad")


def test_top_k_and_penalties_change_the_sampling(engine: LlamaDecoder) -> None:
    prompt = "Say the word fox ten times."
    greedy, _ = _decode(engine, _job(prompt, max_tokens=24))
    hot, _ = _decode(engine, _job(prompt, max_tokens=24, temperature=3.0, seed=1))
    only_best, _ = _decode(engine, _job(prompt, max_tokens=24, temperature=3.0, seed=1, top_k=1))
    penalized, _ = _decode(engine, _job(prompt, max_tokens=24, presence_penalty=2.0, frequency_penalty=2.0))
    assert "".join(only_best) == "".join(greedy)
    assert "".join(hot) != "".join(greedy) != "".join(penalized)


def test_text_is_streamed_and_tokens_are_counted(engine: LlamaDecoder) -> None:
    texts, result = _decode(engine, _job("Tell me a story about a fox.", max_tokens=6))
    assert len(texts) > 1
    assert result.stop_reason == "length"
    assert result.usage.output_tokens == 6
    assert result.usage.input_tokens > 8


def test_a_repeated_prompt_is_cached(engine: LlamaDecoder) -> None:
    job = _job("Count the words of this sentence, all of them.", max_tokens=2)
    _decode(engine, job)
    _, result = _decode(engine, job)
    assert result.usage.cached_tokens > 0.5 * result.usage.input_tokens


def test_a_decode_can_be_stopped_while_it_reads_the_prompt(engine: LlamaDecoder) -> None:
    texts, result = _decode(engine, _job("word " * 1500), stop_after=1)
    assert texts == []
    assert result == DecodeResult()


def test_too_long_prompts_and_invalid_schemas_are_refused(engine: LlamaDecoder) -> None:
    with pytest.raises(ContextTooLongError, match=r"smollm2\.gguf` rejected the request: .*context size"):
        _decode(engine, _job("word " * 9000))
    with pytest.raises(ModelRequestError):
        _decode(engine, _job("Hello", kind="fill", schema={"type": "no such type"}))


def test_an_error_in_the_callback_stops_the_decode_and_is_raised(engine: LlamaDecoder) -> None:
    def on_text(text: str) -> bool:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        engine.decode(_job("Hello"), on_text)


def test_a_file_that_is_not_a_model_raises_a_weights_error(smollm2: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"not a model")
    with pytest.raises(WeightsError, match=r"llama\.cpp cannot load `.*bad\.gguf`"):
        LlamaDecoder(tmp_path / "bad.gguf")


async def test_a_forced_call_has_valid_arguments(engine: LlamaDecoder) -> None:
    request = make_request(
        UserMessage("Oslo?"), tools=(GET_WEATHER,), tool_choice="get_weather", settings=ModelSettings(max_tokens=40)
    )
    chunks = await read_response(engine, request)
    name, arguments = call_in(chunks)
    assert name == "get_weather"
    assert isinstance(msgspec.json.decode(arguments)["city"], str)
    end = chunks[-1]
    assert isinstance(end, ModelResponse)
    assert end.usage is not None
    assert end.usage.output_tokens > 3


async def test_a_typed_answer_follows_its_schema(engine: LlamaDecoder) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    chunks = await read_response(
        engine, make_request(output=OutputSchema("Verdict", {**schema, "additionalProperties": False}))
    )
    assert msgspec.json.decode(text_in(chunks))["ok"] in (True, False)


async def test_decoding_does_not_block_the_loop_and_can_be_cancelled(engine: LlamaDecoder) -> None:
    model = LocalModel("some", engine=engine)
    ticks, has_begun = 0, asyncio.Event()

    async def listen() -> None:
        async for _ in model.respond(make_request(UserMessage("Tell me a very long story."))):
            has_begun.set()

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking, task = asyncio.create_task(tick()), asyncio.create_task(listen())
    await has_begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    ticking.cancel()
    assert ticks > 10
