"""Questions that are open in a live conversation, and whoever waits for the answers."""

import asyncio
from collections.abc import Callable
from typing import Any

from ..context import SuspendRun


class OpenInterrupts:
    """Whoever asks waits here. `on_question` is told at once what is asked, by its key."""

    def __init__(self, on_question: Callable[[str], None]) -> None:
        self._on_question = on_question
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._is_over = False

    @property
    def are_open(self) -> bool:
        """Whether anybody waits for an answer."""
        return bool(self._waiting)

    async def answer_to(self, key: str) -> Any:
        """The answer to a question, when somebody gives one. Ends with Suspend if the conversation ends before."""
        if self._is_over:
            raise SuspendRun(key)
        waiting = self._waiting[key] = asyncio.get_running_loop().create_future()
        self._on_question(key)
        try:
            return await waiting
        finally:
            self._waiting.pop(key, None)

    def answered(self, key: str, answer: Any) -> None:
        """Give the answer to whoever waits for it."""
        waiting = self._waiting.get(key)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def give_up(self) -> None:
        """Nobody can answer any more: whoever waits for an answer is suspended."""
        self._is_over = True
        for key, waiting in self._waiting.items():
            if not waiting.done():
                waiting.set_exception(SuspendRun(key))
