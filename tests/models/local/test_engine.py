"""Real decodes by a real model, the smallest there is: what it may write, how it is stopped, what it counts."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.models.local.stage import GET_WEATHER, answer_of, asked, call_in, text_in

from baton.errors import ContextTooLongError, ModelRequestError, WeightsError
from baton.messages import UserMessage
from baton.models import ModelResponse, ModelSettings, OutputSchema
from baton.models.local import LocalModel
from baton.models.local.engine import DecodeJob, DecodeResult, LlamaDecoder, PromptTurn

pytestmark = pytest.mark.timeout(180)  # The weights may have to be fetched first, and the machine may be busy.


def _decode(
    engine: LlamaDecoder, job: DecodeJob, *, stop_after: int | None = None
) -> tuple[Sequence[str], DecodeResult]:
    pieces: list[str] = []

    def on_text(piece: str) -> bool:
        pieces.append(piece)
        return len(pieces) == stop_after

    outcome = engine.decode(job, on_text)
    return [piece for piece in pieces if piece], outcome


def _job(text: str, **given: Any) -> DecodeJob:
    facts: dict[str, Any] = {"kind": "speak", "max_tokens": 12, **given}
    return DecodeJob(turns=(PromptTurn("user", text),), **facts)


def test_only_the_choices_can_be_written(engine: LlamaDecoder) -> None:
    pieces, outcome = _decode(engine, _job("Sing!", kind="choose", choices=('say "no"', "沉默\\")))
    assert "".join(pieces) in ('say "no"', "沉默\\")
    assert outcome.stop_reason == "stop"


def test_only_what_fits_the_schema_can_be_written(engine: LlamaDecoder) -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"mood": {"$ref": "#/$defs/Mood"}, "count": {"type": "integer"}},
        "required": ["mood", "count"],
        "additionalProperties": False,
        "$defs": {"Mood": {"type": "string", "enum": ["good", "bad"]}},
    }
    pieces, _ = _decode(engine, _job("How are you?", kind="fill", schema=schema, max_tokens=40))
    written = msgspec.json.decode("".join(pieces))
    assert set(written) == {"mood", "count"}
    assert written["mood"] in ("good", "bad")


def test_text_comes_in_pieces_and_tokens_are_counted(engine: LlamaDecoder) -> None:
    pieces, outcome = _decode(engine, _job("Tell me a story about a fox.", max_tokens=6))
    assert len(pieces) > 1
    assert outcome.stop_reason == "length"
    assert outcome.usage.output_tokens == 6
    assert outcome.usage.input_tokens > 8


def test_a_prompt_that_was_read_before_is_not_read_again(engine: LlamaDecoder) -> None:
    job = _job("Count the words of this sentence, all of them.", max_tokens=2)
    _decode(engine, job)
    _, outcome = _decode(engine, job)
    assert outcome.usage.cached_tokens > 0.5 * outcome.usage.input_tokens


def test_a_decode_can_be_stopped_while_the_prompt_is_being_read(engine: LlamaDecoder) -> None:
    pieces, outcome = _decode(engine, _job("word " * 1500), stop_after=1)
    assert pieces == []
    assert outcome == DecodeResult()


def test_what_does_not_fit_is_refused(engine: LlamaDecoder) -> None:
    with pytest.raises(ContextTooLongError, match=r"smollm2\.gguf` rejected the request: .*context size"):
        _decode(engine, _job("word " * 9000))
    with pytest.raises(ModelRequestError):
        _decode(engine, _job("Hello", kind="fill", schema={"type": "no such type"}))


def test_what_a_listener_raises_ends_the_decode_and_comes_out(engine: LlamaDecoder) -> None:
    def on_text(piece: str) -> bool:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        engine.decode(_job("Hello"), on_text)


def test_a_file_that_is_no_model_is_explained(smollm2: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"not a model")
    with pytest.raises(WeightsError, match=r"llama\.cpp cannot load `.*bad\.gguf`"):
        LlamaDecoder(tmp_path / "bad.gguf")


async def test_a_forced_call_has_valid_arguments(engine: LlamaDecoder) -> None:
    request = asked(
        UserMessage("Oslo?"), tools=(GET_WEATHER,), tool_choice="get_weather", settings=ModelSettings(max_tokens=40)
    )
    chunks = await answer_of(engine, request)
    name, arguments = call_in(chunks)
    assert name == "get_weather"
    assert isinstance(msgspec.json.decode(arguments)["city"], str)
    end = chunks[-1]
    assert isinstance(end, ModelResponse)
    assert end.usage is not None
    assert end.usage.output_tokens > 3


async def test_an_answer_of_a_type_fits_it(engine: LlamaDecoder) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    chunks = await answer_of(engine, asked(output=OutputSchema("Verdict", {**schema, "additionalProperties": False})))
    assert msgspec.json.decode(text_in(chunks))["ok"] in (True, False)


async def test_the_loop_goes_on_while_it_decodes_and_cancelling_stops_it(engine: LlamaDecoder) -> None:
    model = LocalModel("some", engine=engine)
    ticks, has_begun = 0, asyncio.Event()

    async def listen() -> None:
        async for _ in model.respond(asked(UserMessage("Tell me a very long story."))):
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
