"""Ids that no other run has, cheap to make."""

import itertools
import os
import secrets
from time import time

_count = itertools.count()
_process = ""


def _name_this_process() -> None:
    global _process
    _process = f"{int(time() * 1000):011x}{secrets.token_hex(4)}"


_name_this_process()
os.register_at_fork(after_in_child=_name_this_process)


def new_id() -> str:
    """When this process began, a random part, and a number that counts up."""
    return f"{_process}{next(_count):06x}"
