"""Resolution of model strings such as `openai:gpt-5`, open to providers that Baton does not know."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from .._checks import check_arguments
from .._wording import type_of
from ..errors import MissingExtraError, SetupError, quote_names
from .model import Model

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINT_GROUP = "batonkit.models"
MODEL_ENV_VAR = "BATON_MODEL"
"""The environment variable that names the model of agents without one: `BATON_MODEL`."""

Factory: TypeAlias = Callable[[str], Model]
"""Creates a model from the part of its string after the prefix."""

_PROTOCOL = "a model is an object with `name` and `respond(request)`, see batonkit.models.Model"
_ALIASES = {"local": "local:qwen2.5-coder"}
_factories: dict[str, Factory] = {}


class _CachedModel(Struct):
    model: Model
    environment: dict[str, str]
    """The variables that the model was made with."""


_models: dict[str, _CachedModel] = {}


@check_arguments
def register_model(prefix: str, factory: Factory) -> None:
    """Register a provider in this process, so that `prefix:name` resolves to `factory(name)`.

    It takes precedence over an installed provider with the same prefix.

    Args:
        prefix: The provider's name, without a colon.
        factory: Creates the model from the part of the string after the prefix.

    Raises:
        SetupError: The prefix is empty or contains a colon.
    """
    if not prefix or ":" in prefix:
        raise SetupError(f"`{prefix}` is not a valid provider prefix: it must not be empty nor contain a colon")
    _factories[prefix] = factory
    for name in [name for name in _models if name.partition(":")[0] == prefix]:
        del _models[name]


def resolve_model(model: Model | str | None, *, wanted_by: str = "") -> Model:
    """Return the model that a string such as `openai:gpt-5` names; a model is returned as it is.

    Args:
        model: A model, a `provider:name` string, or None for the model that BATON_MODEL names. One string resolves to
            one object while the environment variables of its provider stay the same.
        wanted_by: The agent or class that needs the model, for error messages.

    Raises:
        SetupError: There is no model, no such provider, or the object is not a model.
    """
    if model is None:
        model = os.environ.get(MODEL_ENV_VAR) or None
    if isinstance(model, str):
        return _find_or_create(_ALIASES.get(model, model), wanted_by)
    if model is None:
        raise SetupError(
            f"no model was given{_for(wanted_by)}; pass a Model or a string such as `provider:name`, "
            f"or set {MODEL_ENV_VAR} to one"
        )
    if not _is_model(model):
        raise SetupError(f"the model{_for(wanted_by)} is {_describe(model)}; {_PROTOCOL}")
    return model


def check_model_name(model: str, *, wanted_by: str = "") -> None:
    """Raise SetupError if a string does not have the form `provider:name`.

    The provider need not be installed.
    """
    prefix, _, name = _ALIASES.get(model, model).partition(":")
    if prefix and not name and prefix in _available():
        raise SetupError(
            f"the model `{model}`{_for(wanted_by)} names a provider but no model of it; "
            f"write it as `{prefix}:name`, with the provider's name for the model"
        )
    if not prefix or not name:
        raise SetupError(
            f"the model `{model}`{_for(wanted_by)} has no provider prefix; "
            f"write it as `provider:name`, with one of: {quote_names(_available())}"
        )


def _find_or_create(model: str, wanted_by: str) -> Model:
    cached = _models.get(model)
    if cached is None or cached.environment != _read_environment(cached.model):
        created = _create(model, wanted_by)
        cached = _models[model] = _CachedModel(created, _read_environment(created))
    return cached.model


def _read_environment(model: Model) -> dict[str, str]:
    """Return the variables that a model of this provider is made with."""
    prefixes: tuple[str, ...] = getattr(model, "_environment_prefixes", ())
    if not prefixes:
        return {}
    return {name: value for name, value in os.environ.items() if name.upper().startswith(prefixes)}


def _create(model: str, wanted_by: str) -> Model:
    check_model_name(model, wanted_by=wanted_by)
    prefix, _, name = model.partition(":")
    user = _for(wanted_by)
    factory = _factories.get(prefix) or _find_installed(prefix, user)
    if factory is None:
        raise _unknown_provider(model, user)
    created = factory(name)
    if not _is_model(created):
        raise SetupError(f"the provider `{prefix}` returned {_describe(created)} for `{model}`{user}; {_PROTOCOL}")
    return created


def _unknown_provider(model: str, user: str) -> SetupError:
    from difflib import get_close_matches

    prefix, _, name = model.partition(":")
    problem = f"the model `{model}`{user} needs the provider `{prefix}`, which is not installed"
    if near := get_close_matches(prefix.lower(), _available(), n=1):
        return SetupError(f"{problem}; did you mean `{near[0]}:{name}`?")
    return SetupError(
        f"{problem}; available: {quote_names(_available())}. For a provider of your own, call "
        f"batonkit.models.register_model({prefix!r}, factory), or install a package with an entry point `{prefix}` "
        f"in the group `{ENTRY_POINT_GROUP}`"
    )


def _find_installed(prefix: str, user: str) -> Factory | None:
    entries = {entry.value: entry for entry in _entry_points() if entry.name == prefix}
    if len(entries) > 1:
        raise SetupError(
            f"several installed packages provide `{prefix}`: {quote_names(sorted(entries))}; "
            f"choose one with batonkit.models.register_model({prefix!r}, factory)"
        )
    return next((_load(entry, user) for entry in entries.values()), None)


def _load(entry: "EntryPoint", user: str) -> Factory:
    try:
        return entry.load()
    except ModuleNotFoundError as error:
        package = entry.dist.name if entry.dist is not None else "its package"
        extras = f"[{','.join(entry.extras)}]" if entry.extras else ""
        extra = entry.extras[0] if entry.extras else ""
        what = f"the provider `{entry.name}`{user}"
        raise MissingExtraError(what, extra, error, packages=f"{package}{extras}") from error


def _entry_points() -> "tuple[EntryPoint, ...]":
    # Imported here because the import takes longer than that of this package, and most programs never need it.
    from importlib.metadata import entry_points

    return tuple(entry_points(group=ENTRY_POINT_GROUP))


def _available() -> list[str]:
    return sorted({*_factories, *(entry.name for entry in _entry_points())})


def _is_model(value: object) -> bool:
    # Not isinstance: in Python 3.11 a check against a protocol takes several microseconds, and classes pass it.
    return hasattr(value, "respond") and hasattr(value, "name") and not isinstance(value, type)


def _describe(value: object) -> str:
    return f"{type_of(value)} itself" if isinstance(value, type) else type_of(value)


def _for(user: str) -> str:
    return f" for `{user}`" if user else ""
