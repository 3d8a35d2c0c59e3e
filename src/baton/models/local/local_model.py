"""The embedded model as agents see it. It is loaded when it is first asked, in a worker thread."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from threading import Lock

from ...errors import SetupError
from ..base import Chunk, ModelRequest
from .answering import LocalResponder
from .engine import Decoder, LlamaDecoder, is_installed
from .weights import DEFAULT, ready_path


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
