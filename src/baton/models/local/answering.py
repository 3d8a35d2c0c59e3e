"""The embedded model: one answer is at most three decodes, choose, fill and speak, by a small model on this machine."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from time import monotonic
from uuid import uuid4

from ...messages import Usage
from ..base import Chunk, ModelRequest, ModelResponse, TextChunk, ToolCallChunk
from .decoding import decoded
from .engine import DecodeJob, Decoder, DecodeResult
from .options import Choice, calls_so_far, options_of, read_arguments
from .prompts import to_choose, to_fill, to_speak, words_for
from .wording import PromptTexts

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
