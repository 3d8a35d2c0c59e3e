"""Shard keys: a part of every id that says which database of several a run or a thread would be in.

A store of one database ignores them. A run has the key of its thread, so that everything that concerns a conversation
is in one place, and the key can be read off an id without asking any database.
"""

import re

SHARD_KEYS = 4096
"""The number of keys; assign ranges of them to databases."""
_SUFFIX = re.compile(r"~([0-9a-f]{3})\Z")


def shard_key(id: str) -> int:
    """Return the shard key of a run or thread: that of its suffix, or else a hash of the id.

    It is a number from 0 to 4095.
    """
    if (found := _SUFFIX.search(id)) is not None:
        return int(found.group(1), 16)
    from hashlib import sha256

    return int.from_bytes(sha256(id.encode(errors="surrogatepass")).digest()[:2], "big") >> 4


def add_shard_key(run_id: str, thread: str) -> str:
    """Return a run id that has the shard key of its thread.

    Use it for run ids of your own; generated ids of runs in a thread have the key already.
    """
    if not thread or (_SUFFIX.search(run_id) is not None and shard_key(run_id) == shard_key(thread)):
        return run_id
    return f"{run_id}~{shard_key(thread):03x}"
