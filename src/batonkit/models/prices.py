"""Prices of models: from the package `genai-prices`, or a table of your own.

The cost of a model call is recorded with its usage and never computed again: a replayed or resumed run keeps it.
"""

from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from importlib.util import find_spec
from logging import getLogger
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from .._checks import CheckedStructMeta, check_arguments, require_extra
from ..errors import SetupError, nearest
from ..messages import Usage

_logger = getLogger("baton.models")

_PROVIDERS = {
    "openai-responses": "openai",
    "gemini": "google",
    "vertex_ai": "google",
    "bedrock": "aws",
    "xai": "x-ai",
    "together_ai": "together",
    "fireworks_ai": "fireworks",
}
"""Prefixes of model names, ours and LiteLLM's, that `genai-prices` calls by another name."""
_FREE = frozenset(("local", "ollama", "vllm", "lmstudio", "scripted", "scripted-realtime"))
"""Prefixes of models that run on the user's own machines."""


@runtime_checkable
class Prices(Protocol):
    """Computes the cost of model calls, for `Runner(prices=…)`."""

    def cost(self, model: str, usage: Usage) -> float | None:
        """Return the cost of a model call in US dollars; None if the price of the model is unknown.

        Args:
            model: The name of the model with its provider, such as `openai:gpt-5`.
            usage: The tokens of the call.
        """
        ...


class ModelPrice(Struct, frozen=True, kw_only=True, metaclass=CheckedStructMeta):
    """The price of a model in US dollars per million tokens.

    Args:
        input: The price of input tokens.
        output: The price of output tokens.
        cached_input: The price of input tokens that are read from the provider's cache; by default that of `input`.
        cache_write: The price of input tokens that are written to the cache; by default that of `input`.
        reasoning: The price of output tokens that are spent on reasoning; by default that of `output`.
    """

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None
    reasoning: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            price: float | None = getattr(self, name)
            if price is not None and price < 0:
                raise SetupError(f"ModelPrice({name}={price}) is negative; give dollars per million tokens")

    def cost(self, usage: Usage) -> float:
        """Return the cost of a model call.

        Args:
            usage: The tokens of the call.
        """
        plain_input = max(usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens, 0)
        plain_output = max(usage.output_tokens - usage.reasoning_tokens, 0)
        parts = (
            (plain_input, self.input),
            (usage.cached_tokens, self.input if self.cached_input is None else self.cached_input),
            (usage.cache_write_tokens, self.input if self.cache_write is None else self.cache_write),
            (plain_output, self.output),
            (usage.reasoning_tokens, self.output if self.reasoning is None else self.reasoning),
        )
        return sum(tokens * price for tokens, price in parts) / 1_000_000


class PriceTable:
    """A table of prices, for models of your own or prices of your own contract.

    Args:
        prices: Prices by model name with its provider, such as `openai:gpt-5`.
        others: The prices of all other models; by default those of `genai-prices`, if it is installed.

    Raises:
        SetupError: A name has no provider, or a price is not a `ModelPrice`.
    """

    @check_arguments
    def __init__(self, prices: Mapping[str, ModelPrice], *, others: Prices | None = None) -> None:
        for name, price in prices.items():
            if not isinstance(price, ModelPrice):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise SetupError(f"PriceTable has {price!r} for `{name}`; give ModelPrice(input=…, output=…)")
        self._prices = dict(prices)
        self._others = others if others is not None else default_prices()

    def cost(self, model: str, usage: Usage) -> float | None:
        """Return the cost of a model call; None if the price of the model is unknown.

        Args:
            model: The name of the model with its provider.
            usage: The tokens of the call.
        """
        price = self._prices.get(model)
        return price.cost(usage) if price is not None else self._others.cost(model, usage)

    def __repr__(self) -> str:
        return f"PriceTable({len(self._prices)} models)"


class GenAIPrices:
    """The prices of the package `genai-prices`.

    Models that run on your own machines cost nothing.

    Raises:
        SetupError: The package is not installed.
    """

    def __init__(self) -> None:
        require_extra("GenAIPrices()", "prices", "genai_prices")
        self._unknown: set[str] = set()

    def cost(self, model: str, usage: Usage) -> float | None:
        """Return the cost of a model call; None if the price of the model is unknown.

        Args:
            model: The name of the model with its provider.
            usage: The tokens of the call.
        """
        provider, name = _split(model)
        if provider in _FREE:
            return 0.0
        # Audio has prices of its own, and the usage of a realtime session does not say how much of it is audio.
        if model in self._unknown or not name or "realtime" in name:
            return None
        # Imported here: it takes a fifth of a second, and only runs with usage need it.
        import genai_prices

        tokens = genai_prices.Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cached_tokens or None,
            cache_write_tokens=usage.cache_write_tokens or None,
            output_reasoning_tokens=usage.reasoning_tokens or None,
        )
        try:
            price: Decimal = genai_prices.calc_price(tokens, name, provider_id=provider).total_price
        except (LookupError, ValueError) as error:
            # ValueError: the counts contradict each other, such as more cached tokens than input tokens.
            _logger.info("the cost of model `%s` is unknown: %s", model, error)
            self._unknown.add(model)
            return None
        return float(price)

    def __repr__(self) -> str:
        return "GenAIPrices()"


class UnknownPrices:
    """No prices, except that models on your own machines cost nothing."""

    def cost(self, model: str, usage: Usage) -> float | None:
        """Return 0.0 for a model on your own machines, else None."""
        return 0.0 if _split(model)[0] in _FREE else None


@cache
def default_prices() -> Prices:
    """Return the prices of `genai-prices` if it is installed, else `UnknownPrices`."""
    return UnknownPrices() if find_spec("genai_prices") is None else GenAIPrices()


def check_prices(prices: Any) -> Prices | None:
    """Return the prices that `Runner(prices=…)` gives; None for no costs.

    Raises:
        SetupError: It is something else.
    """
    if isinstance(prices, bool):
        return default_prices() if prices else None
    if isinstance(prices, type) or not isinstance(prices, Prices):
        hint = nearest(prices, ["genai-prices"]) if isinstance(prices, str) else ""
        raise SetupError(f"Runner(prices={prices!r}) is not valid; give a PriceTable, True or False{hint}")
    return prices


def add_cost(prices: Prices | None, usage: Usage, model: str, responded: str = "") -> Usage:
    """Return the usage of one model call with its cost, or marked as a call of unknown cost."""
    if prices is None or usage.cost or usage.unpriced_calls or not usage.total_tokens:
        return usage
    name = model
    if responded and responded != model:
        name = responded if ":" in responded else f"{model.partition(':')[0]}:{responded}"
    cost = prices.cost(name, usage)
    if cost is None and name != model:
        cost = prices.cost(model, usage)
    return replace(usage, unpriced_calls=1) if cost is None else replace(usage, cost=cost)


def _split(model: str) -> tuple[str, str]:
    """Return the provider, as `genai-prices` names it, and the name of a model."""
    provider, _, name = model.partition(":")
    if provider == "litellm":
        provider, _, name = name.partition("/") if "/" in name else ("openai", "", name)
    return _PROVIDERS.get(provider, provider), name
