"""Who makes a request, by bearer token, and the names that are theirs alone."""

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from secrets import compare_digest
from typing import TypeAlias
from urllib.parse import quote

from msgspec import Struct

from ...errors import SetupError

Verifier: TypeAlias = Callable[[str], str | None | Awaitable[str | None]]
"""Says whose a bearer token is: a name, or None if it is nobody's."""

Token: TypeAlias = str | Mapping[str, str] | Verifier
"""One token for one caller to whom everything belongs; tokens and whose they are; or a function that knows."""


class Caller(Struct, frozen=True):
    """Who makes a request. Runs and threads of callers with a name lie apart: nobody can even name another's."""

    name: str = ""

    @property
    def prefix(self) -> str:
        """What the ids of this caller's runs and threads begin with in the store; "" for who may see everything."""
        return f"{quote(self.name, safe='')}:" if self.name else ""

    def inside(self, id: str) -> str:
        """The id in the store of what this caller calls `id`."""
        return self.prefix + id

    def owns(self, id: str) -> bool:
        """Whether an id in the store is this caller's."""
        return id.startswith(self.prefix)

    def outside(self, id: str) -> str:
        """What this caller calls that which has this id in the store."""
        return id.removeprefix(self.prefix)


def verifier_of(token: Token) -> Verifier:
    """A function that tells whose a token is. Raises SetupError if it would let in whoever sends nothing."""
    if isinstance(token, str):
        whose = {token: ""}
    elif callable(token):
        return token
    else:
        whose = dict(token)
        if not all(whose.values()):
            raise SetupError("a token belongs to nobody; give each a name, as in token={secret: name}")
    if not whose or not all(whose):
        raise SetupError("a token is empty; give one, or leave `token` out")
    return _Known(whose)


class _Known:
    def __init__(self, whose: Mapping[str, str]) -> None:
        self._whose = whose

    def __call__(self, given: str) -> str | None:
        return owner_in(self._whose, given)


def owner_in(whose: Mapping[str, str], given: str) -> str | None:
    """Whose secret was given, out of all there are; None if it is nobody's."""
    # All are looked at, so that the time it takes tells nothing.
    names = [name for secret, name in whose.items() if is_same(secret, given)]
    return names[0] if names else None


async def caller_of(verifier: Verifier, given: str) -> Caller | None:
    """Whose token was given; None if it is nobody's."""
    name = verifier(given)
    if isawaitable(name):
        name = await name
    # Who has no name may see everything; that is for one token, not for a verifier that knows no name.
    return Caller(name) if name or (name == "" and isinstance(verifier, _Known)) else None


def is_same(secret: str, given: str) -> bool:
    """Whether a secret is the one that was given, in a time that does not tell how much of it is."""
    return compare_digest(secret.encode(), given.encode(errors="replace"))
