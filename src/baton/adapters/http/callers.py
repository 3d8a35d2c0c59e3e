"""Who makes a request, the names that are theirs alone, and whose a secret is."""

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from secrets import compare_digest
from typing import TypeAlias
from urllib.parse import quote

from msgspec import Struct

from ...errors import SetupError

TokenVerifier: TypeAlias = Callable[[str], str | None | Awaitable[str | None]]
"""Says whose a secret is: a name, or None if it is nobody's."""

TokenLike: TypeAlias = str | Mapping[str, str] | TokenVerifier
"""One secret, whose owner may see everything; secrets and whose they are; or a function that knows."""


class Principal(Struct, frozen=True):
    """Who makes a request. Runs and threads of callers with a name lie apart: nobody can even name another's."""

    name: str = ""
    sees_all: bool = False
    """Whether the runs of others are this caller's to see."""

    @property
    def prefix(self) -> str:
        """What the ids of this caller's runs and threads begin with in the store; "" for who has no name."""
        return f"{quote(self.name, safe='')}:" if self.name else ""

    @property
    def whose(self) -> str | None:
        """Whose runs this caller sees, as `Store.list(caller=…)` is asked; None for everybody's."""
        return None if self.sees_all else self.name

    def inside(self, id: str) -> str:
        """The id in the store of what this caller calls `id`."""
        return self.prefix + id

    def outside(self, id: str) -> str:
        """What this caller calls that which has this id in the store."""
        return id.removeprefix(self.prefix)

    def sees(self, owner: str) -> bool:
        """Whether a run is there for this caller: `owner` is the caller that the run's record names."""
        return self.sees_all or owner == self.name


class TokenRegistry:
    """Secrets and whose they are. Raises SetupError if it would let in whoever sends nothing."""

    def __init__(self, token: TokenLike) -> None:
        self._verify: TokenVerifier | None = None
        self._whose: dict[str, str] = {}
        self._is_single = isinstance(token, str)
        if isinstance(token, str):
            self._whose = {token: ""}
        elif callable(token):
            self._verify = token
            return
        else:
            self._whose = dict(token)
            if not all(self._whose.values()):
                raise SetupError("a secret belongs to nobody; give each a name, as in {secret: name}")
        if not self._whose or not all(self._whose):
            raise SetupError("a secret is empty; give one, or leave auth out")

    async def owner(self, given: str) -> Principal | None:
        """Whose a secret is; None if it is nobody's."""
        if self._verify is not None:
            name = self._verify(given)
            if isawaitable(name):
                name = await name
            return Principal(name) if name else None
        # All are looked at, so that the time it takes tells nothing.
        names = [name for secret, name in self._whose.items() if is_same(secret, given)]
        return Principal(names[0], sees_all=self._is_single) if names else None


def is_same(secret: str, given: str) -> bool:
    """Whether a secret is the one that was given, in a time that does not tell how much of it is."""
    return compare_digest(secret.encode(), given.encode(errors="replace"))
