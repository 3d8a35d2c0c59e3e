"""A model that asks other models when the first one fails."""

from collections.abc import AsyncIterator, Callable, Sequence
from logging import getLogger

from ..errors import ModelError
from .attempts import answer, is_retryable
from .base import Chunk, Model, ModelRequest
from .registry import resolve_model

_log = getLogger(__name__)


class FallbackModel:
    """Models in order of preference: the next one is asked when one fails and nothing of its answer was passed on.

    Its name lists them all; the Response says which one answered. By default only `retryable` errors count, which are
    the provider's fault: a request that is wrong for one model is mostly wrong for all. `on` decides instead, for
    instance `on=lambda error: True`.
    """

    def __init__(
        self, first: Model | str, *others: Model | str, should_fall_back: Callable[[ModelError], bool] | None = None
    ) -> None:
        self.models = tuple(resolve_model(model, wanted_by="Failover") for model in (first, *others))
        self.name = f"failover({', '.join(model.name for model in self.models)})"
        self._is_reason_to_switch = should_fall_back or is_retryable

    def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """The answer of the first model that does not fail."""
        return answer(request, self.models[0], next_attempt=self._next_attempt)

    async def _next_attempt(self, failures: Sequence[ModelError], has_output: bool) -> Model | None:
        failed = self.models[: len(failures)]
        error = failures[-1]
        if has_output or len(failed) == len(self.models) or not self._is_reason_to_switch(error):
            if len(failures) > 1:
                error.add_note(f"Failover asked {len(failures)} models: {_told(failed, failures)}")
            return None
        following = self.models[len(failures)]
        _log.info("model %s failed with %s; asking %s", failed[-1].name, type(error).__name__, following.name)
        return following


def _told(models: Sequence[Model], failures: Sequence[ModelError]) -> str:
    pairs = zip(models, failures, strict=True)
    return "; ".join(f"`{model.name}` failed with {type(error).__name__}: {error}" for model, error in pairs)
