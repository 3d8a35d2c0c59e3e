"""Limits on the number of runs that are driven at once."""

from collections.abc import Mapping

from msgspec import Struct

from .._checks import check_positive


class Concurrency(Struct, frozen=True):
    """Limits on the runs of a store that workers drive at once.

    With the engine `postgres` they hold for all workers together, with `local` for each worker; `temporal` has none.
    """

    per_owner: int | None = None
    """The number of runs of one owner; no limit by default. Runs without an owner are not limited by it."""
    total: int | None = None
    """The number of runs of all owners; no limit by default."""

    def __post_init__(self) -> None:
        check_positive("Concurrency(per_owner=…)", self.per_owner)
        check_positive("Concurrency(total=…)", self.total)

    def admits(self, owner: str, driven: Mapping[str, int]) -> bool:
        """Return whether another run of an owner may be driven.

        Args:
            owner: The owner of the run.
            driven: The number of runs of each owner that are driven now.
        """
        if self.total is not None and sum(driven.values()) >= self.total:
            return False
        return self.per_owner is None or not owner or driven.get(owner, 0) < self.per_owner


NO_LIMITS = Concurrency()
