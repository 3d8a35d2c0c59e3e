"""LocalModel: a response takes at most three decodings, to choose a step, fill in arguments and answer.

Decoding runs in a worker thread, in which the weights are also loaded on first use.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from threading import Event, Lock
from time import monotonic
from uuid import uuid4

from msgspec.structs import replace

from ..._checks import check_arguments, require_extra
from ...errors import ModelTimeoutError
from ...messages import Usage
from ..model import Chunk, ModelRequest, ModelResponse, TextChunk, ToolCallChunk
from ..settings import require_supported
from .engine import SAMPLING, DecodeJob, Decoder, DecodeResult, LlamaDecoder
from .prompt_texts import PROMPT_TEXTS
from .prompts import Choice, calls_so_far, language_of, list_choices, read_arguments, to_choose, to_fill, to_speak
from .weights import DEFAULT, FOLDER_VARIABLE, ready_path


async def decode(
    engine: Decoder, job: DecodeJob, *, deadline: float | None = None
) -> AsyncGenerator[str | DecodeResult]:
    """Stream the decoded text, then the result. Closing the iterator stops the decoding."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[str | DecodeResult | Exception] = asyncio.Queue()
    is_stopped = Event()

    def put(item: str | DecodeResult | Exception) -> None:
        loop.call_soon_threadsafe(queue.put_nowait, item)

    def on_text(piece: str) -> bool:
        if deadline is not None and monotonic() > deadline:
            raise ModelTimeoutError("the embedded model did not finish within ModelSettings(timeout=…)")
        if piece and not is_stopped.is_set():
            put(piece)
        return is_stopped.is_set()

    def work() -> None:
        try:
            put(engine.decode(job, on_text))
        except Exception as error:  # noqa: BLE001 - raised again by the reader
            put(error)

    worker = loop.run_in_executor(None, work)
    try:
        while True:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            yield item
            if isinstance(item, DecodeResult):
                return
    finally:
        is_stopped.set()
        # The thread ends at its next piece; the next decoding should not share the CPU with it.
        await asyncio.shield(worker)


# Small models tend to repeat themselves until they are stopped.
_TEXT_TOKENS = 200
_STRUCTURED_TOKENS = 1024


class LocalResponder:
    """Produces one response."""

    def __init__(self, engine: Decoder, request: ModelRequest, *, model: str) -> None:
        self._engine = engine
        self._request = request
        self._model = model
        self._texts = PROMPT_TEXTS[language_of(request)]
        self._options = list_choices(request, reply=self._texts.reply)
        self._usage = Usage()
        self._stop_reason = ""
        timeout = request.settings.timeout
        self._deadline = None if timeout is None else monotonic() + timeout

    async def chunks(self) -> AsyncGenerator[Chunk]:
        """Stream the response."""
        chosen = await self._choose()
        call = await self._begin_call(chosen)
        if call is not None:
            yield call
        if call is None or not call.arguments:
            job = self._job_to_speak() if call is None else self._job_to_fill(chosen)
            async with aclosing(self._pieces(job)) as pieces:
                async for piece in pieces:
                    yield TextChunk(piece) if call is None else ToolCallChunk(0, arguments=piece)
        reason = "tool_calls" if call is not None and self._stop_reason == "stop" else self._stop_reason
        yield ModelResponse(usage=self._usage, stop_reason=reason, model=self._model)

    async def _choose(self) -> Choice:
        options = self._options
        if len(options) == 1:
            return options[-1]
        by_name = {option.name: option for option in options}
        turns = to_choose(self._request, options, self._texts)
        name = await self._whole(DecodeJob(kind="choose", turns=turns, choices=tuple(by_name), max_tokens=64))
        # A name longer than the token limit is cut off.
        return by_name.get(name) or next((one for one in options if one.name.startswith(name)), options[-1])

    async def _begin_call(self, chosen: Choice) -> ToolCallChunk | None:
        """Return the call, without arguments if they are still to be streamed, or None for a reply."""
        if chosen.tool is None:
            return None
        call = ToolCallChunk(0, f"call_{uuid4().hex[:16]}", chosen.tool.name)
        must_call = self._options[-1].tool is not None
        made = [] if must_call else calls_so_far(self._request).get(chosen.tool.name, [])
        if chosen.arguments is not None:
            self._stop_reason = "stop"
            arguments = chosen.arguments
        elif made:
            arguments = await self._whole(self._job_to_fill(chosen))
        else:
            return call
        # Small models tend to repeat calls.
        return None if read_arguments(arguments) in made else replace(call, arguments=arguments)

    def _job_to_fill(self, chosen: Choice) -> DecodeJob:
        assert chosen.tool is not None
        return DecodeJob(
            kind="fill",
            turns=to_fill(self._request, chosen.tool, self._texts),
            schema=chosen.tool.parameters,
            max_tokens=self._request.settings.max_tokens or _STRUCTURED_TOKENS,
        )

    def _job_to_speak(self) -> DecodeJob:
        settings = self._request.settings
        output = self._request.output_schema
        return DecodeJob(
            kind="speak",
            turns=to_speak(self._request, self._options, self._texts),
            schema=output.schema if output is not None else None,
            max_tokens=settings.max_tokens or (_STRUCTURED_TOKENS if output is not None else _TEXT_TOKENS),
            stop=settings.stop_sequences or (),
            **{name: getattr(settings, name) for name in SAMPLING if getattr(settings, name) is not None},
        )

    async def _pieces(self, job: DecodeJob) -> AsyncGenerator[str]:
        async with aclosing(decode(self._engine, job, deadline=self._deadline)) as items:
            async for item in items:
                if isinstance(item, DecodeResult):
                    self._usage += item.usage
                    self._stop_reason = item.stop_reason
                else:
                    yield item

    async def _whole(self, job: DecodeJob) -> str:
        return "".join([piece async for piece in self._pieces(job)])


_LEAVE_OUT = "leave it out"
LACKS = {
    "reasoning_effort": _LEAVE_OUT,
    "verbosity": "limit the answer with max_tokens",
    "truncation": "shorten the history with Agent(history=…)",
    "logprobs": _LEAVE_OUT,
    "top_logprobs": _LEAVE_OUT,
    "metadata": _LEAVE_OUT,
    "service_tier": _LEAVE_OUT,
    "extra_headers": "no request is sent; leave it out",
    "extra_query": "no request is sent; leave it out",
    "extra_body": "no request is sent; leave it out",
}
"""The model settings that embedded models lack, and for each of them what would work."""


class LocalModel:
    """A small embedded model, for demonstrations, examples and tests without an API key.

    Raises:
        SetupError: llama.cpp is not installed, or there is no such embedded model.
        WeightsError: The weights are missing or incomplete.
    """

    _environment_prefixes = (FOLDER_VARIABLE,)

    @check_arguments
    def __init__(self, weights: str | Path = DEFAULT, *, engine: Decoder | None = None) -> None:
        self._weights = str(weights)
        self._engine = engine
        self._loading = Lock()
        if engine is None:
            # Checked at construction, not in the middle of a run.
            require_extra(f"the model `{self.name}`", "local", "xllamacpp")
            ready_path(self._weights)

    @property
    def name(self) -> str:
        """The prefix `local:` and the name of the weights or of their file."""
        return f"local:{Path(self._weights).name}"

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Stream the response to one request: a tool call, a transfer or text."""
        request = replace(request, settings=require_supported(request.settings, self.name, LACKS))
        engine = self._engine or await asyncio.to_thread(self._load)
        async with aclosing(LocalResponder(engine, request, model=self.name).chunks()) as chunks:
            async for chunk in chunks:
                yield chunk

    def _load(self) -> Decoder:
        with self._loading:
            if self._engine is None:
                self._engine = LlamaDecoder(ready_path(self._weights))
            return self._engine
