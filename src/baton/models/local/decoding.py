"""A blocking decode as an async stream: it runs in a worker thread, and closing the stream ends it."""

import asyncio
from collections.abc import AsyncGenerator
from threading import Event
from time import monotonic

from ...errors import ModelTimeoutError
from .engine import DecodeJob, Decoder, DecodeResult


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
