"""Ports of this machine for servers that cannot be given a socket."""

import socket
from collections.abc import Generator
from contextlib import contextmanager
from random import Random

# Not of the range from which the system takes ports for other tests that run at the same time.
_FIRST, _LAST = 10_000, 32_000
_random = Random()


def free_port() -> int:
    """Return a port that is not in use, for another process; within this one use `reserved_port`."""
    while True:
        port = _random.randrange(_FIRST, _LAST)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port


@contextmanager
def reserved_port() -> Generator[int]:
    """Yield a port that refuses connections until a server of this test listens there, and that no one else gets."""
    with socket.socket() as holder:
        # Other sockets with this option may listen at the port, because this one does not.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
