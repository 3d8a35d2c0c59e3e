"""Which model a string such as `openai:gpt-5` means; open to providers that Baton does not know."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ..errors import SetupError, quote_names
from .base import Model

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINT_GROUP = "baton.models"
MODEL_ENV_VAR = "BATON_MODEL"
"""The environment variable that names the model of agents that have none: `BATON_MODEL`."""

Factory: TypeAlias = Callable[[str], Model]
"""Makes the model with this name, which is what follows the prefix."""

_factories: dict[str, Factory] = {}
_ALONE = {"local": "local:qwen2.5-coder"}
"""Prefixes that may stand alone, and what they mean then."""
_models: dict[str, Model] = {}


def register_model(prefix: str, factory: Factory) -> None:
    """Let `prefix:name` mean `factory(name)` in this process, before any installed provider of that prefix."""
    if not prefix or ":" in prefix:
        raise SetupError(f"`{prefix}` cannot be the prefix of a provider: it must have a name, and no colon in it")
    _factories[prefix] = factory
    for known in [known for known in _models if known.partition(":")[0] == prefix]:
        del _models[known]


def resolve_model(model: Model | str | None, *, wanted_by: str = "") -> Model:
    """The model itself, or the one that a string such as `openai:gpt-5` names; one object for each string.

    None means the model that the environment variable BATON_MODEL names.
    """
    if model is None:
        model = os.environ.get(MODEL_ENV_VAR) or None
    if isinstance(model, str):
        model = _ALONE.get(model, model)
        known = _models.get(model)
        if known is None:
            known = _models[model] = _made(model, _for(wanted_by))
        return known
    if model is None:
        raise SetupError(
            f"no model was given{_for(wanted_by)}; give a Model, or a string such as `provider:name`, "
            f"or set {MODEL_ENV_VAR} to one"
        )
    if not _is_model(model):
        raise SetupError(f"the model{_for(wanted_by)} is {_shown(model)}; {_WHAT_A_MODEL_IS}")
    return model


_WHAT_A_MODEL_IS = "a model is an object with `name` and `respond(request)`, see baton.models.Model"


def _made(wanted: str, for_whom: str) -> Model:
    prefix, _, name = wanted.partition(":")
    if not prefix or not name:
        raise SetupError(
            f"the model `{wanted}`{for_whom} does not say which provider and which of its models is meant; "
            f"write it as `provider:name`, with one of: {_available()}"
        )
    factory = _factories.get(prefix) or _installed(prefix, for_whom)
    if factory is None:
        raise SetupError(
            f"the model `{wanted}`{for_whom} needs the provider `{prefix}`; available: {_available()}. "
            f"Install a package with an entry point `{prefix}` in the group `{ENTRY_POINT_GROUP}`, "
            f"or call baton.models.register({prefix!r}, factory)"
        )
    made = factory(name)
    if not _is_model(made):
        raise SetupError(f"the provider `{prefix}` made {_shown(made)} of `{wanted}`{for_whom}; {_WHAT_A_MODEL_IS}")
    return made


def _installed(prefix: str, for_whom: str) -> Factory | None:
    claims = {entry.value: entry for entry in _entry_points() if entry.name == prefix}
    if len(claims) > 1:
        raise SetupError(
            f"several installed packages claim the provider `{prefix}`: {quote_names(sorted(claims))}; "
            f"choose one with baton.models.register({prefix!r}, factory)"
        )
    for entry in claims.values():
        return _loaded(entry, for_whom)
    return None


def _loaded(entry: "EntryPoint", for_whom: str) -> Factory:
    try:
        return entry.load()
    except ImportError as error:
        package = entry.dist.name if entry.dist is not None else "its package"
        extras = f"[{','.join(entry.extras)}]" if entry.extras else ""
        raise SetupError(
            f"the provider `{entry.name}`{for_whom} cannot be imported from `{package}`: {error}; "
            f"install what it needs, for instance with: pip install '{package}{extras}'"
        ) from error


def _entry_points() -> "tuple[EntryPoint, ...]":
    # Imported here because it takes longer to import than all of this room, and most programs never need it.
    from importlib.metadata import entry_points

    return tuple(entry_points(group=ENTRY_POINT_GROUP))


def _available() -> str:
    return quote_names(sorted({*_factories, *(entry.name for entry in _entry_points())}))


def _is_model(given: object) -> bool:
    # Not isinstance: in Python 3.11 a check against a protocol costs several microseconds, and classes pass it.
    return hasattr(given, "respond") and hasattr(given, "name") and not isinstance(given, type)


def _shown(value: object) -> str:
    return f"the class {value.__name__} itself" if isinstance(value, type) else f"a {type(value).__name__}"


def _for(wanted_by: str) -> str:
    return f" for `{wanted_by}`" if wanted_by else ""
