"""The embedded model as agents see it. It is loaded when it is first asked, in a worker thread.

A blocking decode as an async stream: it runs in a worker thread, and closing the stream ends it.

The embedded model: one answer is at most three decodes, choose, fill and speak, by a small model on this machine.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from threading import Event, Lock
from time import monotonic
from uuid import uuid4

from ...errors import ModelTimeoutError, SetupError
from ...messages import Usage
from ..base import Chunk, ModelRequest, ModelResponse, TextChunk, ToolCallChunk
from .engine import DecodeJob, Decoder, DecodeResult, LlamaDecoder, is_installed
from .prompt_texts import PromptTexts
from .prompts import Choice, calls_so_far, options_of, read_arguments, to_choose, to_fill, to_speak, words_for
from .weights import DEFAULT, ready_path


async def decoded(
    engine: Decoder, job: DecodeJob, *, deadline: float | None = None
) -> AsyncGenerator[str | DecodeResult]:
    """The pieces of text as they come, then how it ended. `deadline` is a time of the monotonic clock."""
    loop = asyncio.get_running_loop()
    heard: asyncio.Queue[str | DecodeResult | Exception] = asyncio.Queue()
    is_over = Event()

    def tell(what: str | DecodeResult | Exception) -> None:
        loop.call_soon_threadsafe(heard.put_nowait, what)

    def hear(piece: str) -> bool:
        if deadline is not None and monotonic() > deadline:
            raise ModelTimeoutError("the embedded model did not finish within the time allowed")
        if piece and not is_over.is_set():
            tell(piece)
        return is_over.is_set()

    def work() -> None:
        try:
            tell(engine.decode(job, hear))
        except Exception as error:  # noqa: BLE001 - raised again where the stream is read
            tell(error)

    worker = loop.run_in_executor(None, work)
    try:
        while True:
            what = await heard.get()
            if isinstance(what, Exception):
                raise what
            yield what
            if isinstance(what, DecodeResult):
                return
    finally:
        is_over.set()
        # The thread ends at its next piece; who starts another decode should not have to share the processor with it.
        await asyncio.shield(worker)


# Small models that have nothing more to say tend to say it again, until something stops them.
_SPOKEN_TOKENS = 200
_STRUCTURED_TOKENS = 1024


class LocalResponder:
    """One answer while it is made."""

    def __init__(self, engine: Decoder, request: ModelRequest, *, model: str) -> None:
        self._engine = engine
        self._request = request
        self._model = model
        self._words: PromptTexts = words_for(request)
        self._options: Sequence[Choice] = options_of(request, reply=self._words.reply)
        self._usage = Usage()
        self._stop_reason = ""
        timeout = request.settings.timeout
        self._deadline = None if timeout is None else monotonic() + timeout

    async def chunks(self) -> AsyncGenerator[Chunk]:
        """The answer, piece by piece."""
        chosen = await self._choose()
        must_call = self._options[-1].tool is not None
        has_called = False
        if chosen.tool is not None:
            async with aclosing(self._call(chosen, must=must_call)) as pieces:
                async for chunk in pieces:
                    has_called = True
                    yield chunk
        if not has_called:
            async with aclosing(self._speak()) as pieces:
                async for chunk in pieces:
                    yield chunk
        reason = "tool_calls" if has_called and self._stop_reason == "stop" else self._stop_reason
        yield ModelResponse(usage=self._usage, stop_reason=reason, model=self._model)

    async def _choose(self) -> Choice:
        options = self._options
        if len(options) == 1:
            return options[-1]
        names = tuple([option.name for option in options])
        job = DecodeJob(
            kind="choose", turns=to_choose(self._request, options, self._words), choices=names, max_tokens=64
        )
        name = await self._whole(job)
        # A name of more tokens than the limit leaves its beginning.
        return next(
            (o for o in options if o.name == name), next((o for o in options if o.name.startswith(name)), options[-1])
        )

    async def _call(self, chosen: Choice, *, must: bool) -> AsyncGenerator[Chunk]:
        """The call, or nothing if it was made already: a small model likes to repeat itself."""
        assert chosen.tool is not None
        made = [] if must else calls_so_far(self._request).get(chosen.tool.name, [])
        first = ToolCallChunk(0, f"call_{uuid4().hex[:16]}", chosen.tool.name)
        if chosen.arguments is not None:
            self._stop_reason = "stop"
            if read_arguments(chosen.arguments) not in made:
                yield ToolCallChunk(0, first.id, first.name, chosen.arguments)
            return
        job = DecodeJob(
            kind="fill",
            turns=to_fill(self._request, chosen.tool, self._words),
            schema=chosen.tool.parameters,
            max_tokens=self._request.settings.max_tokens or _STRUCTURED_TOKENS,
        )
        if made:
            arguments = await self._whole(job)
            if read_arguments(arguments) not in made:
                yield ToolCallChunk(0, first.id, first.name, arguments)
            return
        yield first
        async with aclosing(self._pieces(job)) as pieces:
            async for piece in pieces:
                yield ToolCallChunk(0, arguments=piece)

    async def _speak(self) -> AsyncGenerator[Chunk]:
        settings, output = self._request.settings, self._request.output_schema
        job = DecodeJob(
            kind="speak",
            turns=to_speak(self._request, self._options, self._words),
            schema=output.schema if output is not None else None,
            max_tokens=settings.max_tokens or (_STRUCTURED_TOKENS if output is not None else _SPOKEN_TOKENS),
            temperature=settings.temperature or 0.0,
            top_p=settings.top_p,
            seed=settings.seed,
            stop=settings.stop_sequences or (),
        )
        async with aclosing(self._pieces(job)) as pieces:
            async for piece in pieces:
                yield TextChunk(piece)

    async def _pieces(self, job: DecodeJob) -> AsyncGenerator[str]:
        async with aclosing(decoded(self._engine, job, deadline=self._deadline)) as heard:
            async for what in heard:
                if isinstance(what, DecodeResult):
                    self._usage += what.usage
                    self._stop_reason = what.stop_reason
                else:
                    yield what

    async def _whole(self, job: DecodeJob) -> str:
        return "".join([piece async for piece in self._pieces(job)])


class LocalModel:
    """A small model on this machine: `weights` is the name of an embedded one, or the path of a GGUF file.

    For demonstrations, examples and tests without a key; not a model to build on. `engine` is for tests.
    """

    def __init__(self, weights: str | Path = DEFAULT, *, engine: Decoder | None = None) -> None:
        self._weights = str(weights)
        self._engine = engine
        self._loading = Lock()
        if engine is None:
            self._check()

    @property
    def name(self) -> str:
        """`local:` and the name of the weights, or of their file."""
        return f"local:{Path(self._weights).name}"

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Choose among tools, transfers and a reply; then fill in the arguments, or speak."""
        engine = self._engine or await asyncio.to_thread(self._loaded)
        async with aclosing(LocalResponder(engine, request, model=self.name).chunks()) as chunks:
            async for chunk in chunks:
                yield chunk

    def _check(self) -> None:
        # Said where the model is named, not in the middle of a run.
        if not is_installed():
            raise SetupError(
                f"`{self.name}` needs llama.cpp, which is not installed; pip install 'baton-adk[local]' brings it"
            )
        ready_path(self._weights)

    def _loaded(self) -> Decoder:
        with self._loading:
            if self._engine is None:
                self._engine = LlamaDecoder(ready_path(self._weights))
            return self._engine
