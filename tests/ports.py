"""Ports of this machine for servers that cannot be given a socket."""

import socket
from random import Random

# Not of the range from which the system takes ports for other tests that run at the same time.
_FIRST, _LAST = 10_000, 32_000
_random = Random()


def free_port() -> int:
    """Return a port that is not in use."""
    while True:
        port = _random.randrange(_FIRST, _LAST)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
