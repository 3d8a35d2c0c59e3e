"""The command line in processes of its own, with pipes or a terminal."""

import os
import pty
import selectors
import signal
import subprocess
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic
from typing import IO

import pytest
from tests.cli.programs import Write
from tests.cli.programs import baton as baton
from tests.cli.programs import write as write

# A shell may start tests with SIGINT ignored, which child processes inherit.
_PROGRAM = """\
import signal, sys
if sys.stdin.isatty():
    # Without a controlling terminal the program gets no Ctrl-C.
    import fcntl, termios
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.default_int_handler)
from batonkit.cli.main import main
main()
"""


class Terminal:
    """The command line in its own process, with pipes or a pseudo-terminal for input and output."""

    def __init__(self, *arguments: str, is_real: bool = False, term: str = "dumb") -> None:
        ends = pty.openpty() if is_real else None
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *arguments],
            stdin=ends[1] if ends else subprocess.PIPE,
            stdout=ends[1] if ends else subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUTF8": "1", "TERM": term},
            start_new_session=is_real,
        )
        self._seen = ""
        self._decoder = getincrementaldecoder("utf-8")()
        self._terminal = ends[0] if ends else None
        if ends:
            os.close(ends[1])

    def type(self, line: str) -> None:
        """Type a line."""
        self.press(f"{line}\n")

    def press(self, keys: str) -> None:
        """Send keys without a line break."""
        if self._terminal is not None:
            os.write(self._terminal, keys.encode())
        else:
            stdin = _open(self.process.stdin)
            stdin.write(keys.encode())
            stdin.flush()

    def press_ctrl_c_until(self, wanted: str) -> None:
        """Press Ctrl-C until this text appears: readline misses one that arrives before it waits for input."""
        for _ in range(20):
            # Wait for an echo first: before that, readline may ignore Ctrl-C.
            with suppress(AssertionError):
                self.press("z")
                self.read_until("z", seconds=0.5)
            self.press("\x03")
            try:
                self.read_until(wanted, seconds=0.5)
            except AssertionError:
                continue
            return
        self.read_until(wanted)

    def type_until(self, line: str, wanted: str) -> None:
        """Type a line until this text appears: a late Ctrl-C discards the input."""
        for _ in range(3):
            self.type(line)
            try:
                self.read_until(wanted, seconds=5)
            except AssertionError:
                continue
            return
        self.read_until(wanted)

    def press_ctrl_c(self) -> None:
        """Send the signal of Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def read_until(self, wanted: str, *, seconds: float = 60) -> str:
        """Return the output up to and including this text."""
        stdout = self._terminal if self._terminal is not None else _open(self.process.stdout).fileno()
        deadline = monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while wanted not in self._seen:
                if not selector.select(max(0, deadline - monotonic())):
                    raise AssertionError(f"no {wanted!r} within {seconds} s, only: {self._seen!r}")
                try:
                    data = os.read(stdout, 4096)
                except OSError:
                    # A terminal whose program has ended.
                    data = b""
                if not data:
                    raise AssertionError(f"the program ended without {wanted!r}: {self._seen!r}")
                self._seen += self._decoder.decode(data)
        before, _, self._seen = self._seen.partition(wanted)
        return before + wanted

    def leave(self) -> tuple[int, str]:
        """Close the input and wait for the end; return the exit code and the remaining output."""
        rest, _ = self.process.communicate(timeout=20)
        return self.process.returncode, self._seen + rest.decode()

    def close(self) -> None:
        """Kill the process if it is still running."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        if self._terminal is not None:
            os.close(self._terminal)


@pytest.fixture
def terminal(write: Write) -> Iterator[Callable[..., Terminal]]:
    """Return a function that starts `baton` in its own process: `terminal("chat", "desk:agent")`."""
    opened: list[Terminal] = []

    def start(*arguments: str, is_real: bool = False, term: str = "dumb") -> Terminal:
        opened.append(Terminal(*arguments, is_real=is_real, term=term))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def _open(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
