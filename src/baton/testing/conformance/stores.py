"""The conformance suite of stores: what any Store must do, each thing one check.

A check is an async function of `open`, which opens a store at one place that was empty before the check:

    @pytest.mark.parametrize("check", STORE_CHECKS, ids=name_of)
    async def test_my_store(check: StoreCheck, tmp_path: Path) -> None:
        await check(partial(MyStore, tmp_path / "runs"))

`open` is called once or several times; what it gives is closed by the check. A store that lives in memory is given
again as it is. For SHARED_STORE_CHECKS it must be possible to pickle `open`, because other processes call it, too.
"""

from . import store_leases, store_listing, store_logs, store_races, store_threads
from .store_checks import StoreCheck, name_of

STORE_CHECKS: tuple[StoreCheck, ...] = (
    *store_logs.CHECKS,
    *store_threads.CHECKS,
    *store_leases.CHECKS,
    *store_listing.CHECKS,
    *store_races.CHECKS,
)
"""What every store must do."""

SHARED_STORE_CHECKS: tuple[StoreCheck, ...] = store_races.SHARED_CHECKS
"""What a store must do as well if several processes may use it at once."""

__all__ = ["SHARED_STORE_CHECKS", "STORE_CHECKS", "StoreCheck", "name_of"]
