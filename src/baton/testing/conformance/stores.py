"""The conformance suite of stores: what any Store must do, each thing one check.

A check is an async function of `open`, which opens a store at one place that was empty before the check:

    @pytest.mark.parametrize("check", STORE_CHECKS, ids=name_of)
    async def test_my_store(check: StoreCheck, tmp_path: Path) -> None:
        await check(partial(MyStore, tmp_path / "runs"))

`open` is called once or several times; what it gives is closed by the check. A store that lives in memory is given
again as it is. For SHARED_STORE_CHECKS it must be possible to pickle `open`, because other processes call it, too.
"""

from .store_checks import StoreCheck, check_name
from .store_leases import CHECKS as OF_LEASES
from .store_listing import CHECKS as OF_LISTING
from .store_logs import CHECKS as OF_LOGS
from .store_notes import CHECKS as OF_NOTES
from .store_races import CHECKS as OF_RACES
from .store_races import SHARED_CHECKS as OF_PROCESSES
from .store_threads import CHECKS as OF_THREADS

STORE_CHECKS: tuple[StoreCheck, ...] = (*OF_LOGS, *OF_NOTES, *OF_THREADS, *OF_LEASES, *OF_LISTING, *OF_RACES)
"""What every store must do."""

SHARED_STORE_CHECKS: tuple[StoreCheck, ...] = OF_PROCESSES
"""What a store must do as well if several processes may use it at once."""

__all__ = ["SHARED_STORE_CHECKS", "STORE_CHECKS", "StoreCheck", "check_name"]
