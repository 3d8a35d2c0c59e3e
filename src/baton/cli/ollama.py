"""Whether Ollama runs on this machine, and which of its models to take."""

import msgspec
from msgspec import Struct

from ..errors import SetupError
from ..models import Model, resolve_model

TAGS = "http://127.0.0.1:11434/api/tags"
_PATIENCE = 0.3


class _Named(Struct):
    name: str


class _Tags(Struct):
    models: list[_Named]


def model_of_ollama(tags: str | None = None) -> Model | None:
    """A model of the Ollama that answers on the loopback device at once; None if there is none."""
    names = [name for name in _names_at(tags or TAGS) if "embed" not in name]
    if not names:
        return None
    try:
        return resolve_model(f"ollama:{names[0]}")
    except SetupError:
        # Its provider is an extra that need not be installed.
        return None


def _names_at(tags: str) -> list[str]:
    from urllib.request import ProxyHandler, build_opener

    try:
        # No proxy: what is asked about is this very machine.
        with build_opener(ProxyHandler({})).open(tags, timeout=_PATIENCE) as answer:
            return [model.name for model in msgspec.json.decode(answer.read(), type=_Tags).models]
    except (OSError, msgspec.MsgspecError):
        return []
