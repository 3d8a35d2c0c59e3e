"""The characters that ids of runs and names of threads and owners may have.

Ids of runs are parts of addresses, header fields and file names. Names of threads and owners are shown in terminals and
logs. The rules hold when a run is created; any id that a store has can be read.
"""

import re

from ..errors import InvalidIdError

RUN_ID_CHARACTERS = "ASCII letters, digits and . _ ~ : @ % + = -"
"""The characters of run ids, as messages name them."""
NAME_CHARACTERS = "printable characters"
"""The characters of names of threads and owners, as messages name them."""
_OTHER = re.compile(r"[^A-Za-z0-9._~:@%+=-]")


def check_run_id(run_id: str, parameter: str = "run_id") -> None:
    """Raise InvalidIdError unless a new run may have this id."""
    if (invalid := _OTHER.search(run_id)) is not None:
        raise InvalidIdError(parameter, run_id, invalid.group(), RUN_ID_CHARACTERS)


def check_name(parameter: str, name: str) -> None:
    """Raise InvalidIdError unless a thread or an owner of a new run may have this name."""
    if not name.isprintable():
        character = next(each for each in name if not each.isprintable())
        raise InvalidIdError(parameter, name, character, NAME_CHARACTERS)
