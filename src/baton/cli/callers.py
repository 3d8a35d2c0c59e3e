"""Who may call what is served, as the command line says it."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from ..errors import SetupError
from .failures import TargetError
from .load import load_any

if TYPE_CHECKING:
    from ..adapters.http import Auth


def auth_from(token_env: str | None, reference: str | None) -> "tuple[Auth, ...]":
    """The ways that the options name; none if they name none."""
    from ..adapters.http.auth import to_auth_list

    if token_env is not None and reference is not None:
        raise TargetError("--token-env and --auth both say who may call; give one of them")
    if token_env is not None:
        return to_auth_list(token_from(token_env))
    if reference is None:
        return ()
    try:
        return to_auth_list(load_any(reference))
    except (SetupError, TypeError, AttributeError) as error:
        raise TargetError(f"`{reference}` is no way to know callers, nor a list of them: {error}") from None


def token_from(variable: str) -> str | Mapping[str, str]:
    """The token, or the tokens and whose they are, in an environment variable."""
    given = os.environ.get(variable, "").strip()
    if not given:
        raise TargetError(f"there is nothing in the environment variable `{variable}` that --token-env names")
    if not given.startswith("{"):
        return given
    try:
        return msgspec.json.decode(given, type=dict[str, str])
    except msgspec.MsgspecError as error:
        raise TargetError(f"`{variable}` is not a JSON object of tokens and names: {error}") from None
