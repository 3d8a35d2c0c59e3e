"""Which realtime model a string such as `openai:gpt-realtime` means."""

from collections.abc import Callable

from ..errors import SetupError, quote_names
from .base import RealtimeModel


def resolve_realtime_model(model: RealtimeModel | str, *, base_url: str | None = None) -> RealtimeModel:
    """The model itself, or the one that a string names, at `base_url` if it is not where its provider has it."""
    if not isinstance(model, str):
        if not isinstance(model, RealtimeModel):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SetupError(
                f"{model!r} is no realtime model: that is an object with `name`, `check` and `connect`, "
                "or a string such as `openai:gpt-realtime`"
            )
        return model
    provider, _, name = model.partition(":")
    make = _PROVIDERS.get(provider)
    if make is None or not name:
        known = quote_names([f"{each}:…" for each in _PROVIDERS])
        raise SetupError(f"`{model}` does not name a realtime model; write it as `provider:name`, with one of: {known}")
    return make(name, base_url)


def _openai(name: str, base_url: str | None) -> RealtimeModel:
    from .openai import OpenAIRealtimeModel

    return OpenAIRealtimeModel(name, base_url=base_url)


_PROVIDERS: dict[str, Callable[[str, str | None], RealtimeModel]] = {"openai": _openai}
