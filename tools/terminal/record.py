"""Record a real session in two terminals and render it as an animated SVG: `make pictures`.

One terminal runs `baton chat`; the other lists the run and kills the process with `kill -9`. Everything that is shown
is what the programs printed. Pauses are shortened.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pyte

from tools.terminal.svg import Frame, Row, render

FOLDER = Path(__file__).parent
PICTURE = FOLDER.parents[1] / "docs" / "images" / "terminal.svg"
COLUMNS = 84
CHAT_ROWS, SHELL_ROWS = 14, 5
LONGEST_PAUSE = 0.7
PATIENCE = 60.0


class Terminal:
    """A shell in a pseudo-terminal, and its screen."""

    def __init__(self, rows: int, folder: str) -> None:
        self.screen = pyte.Screen(COLUMNS, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            paths = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            environment = {"PATH": paths, "PS1": "$ ", "TERM": "xterm-256color", "HOME": folder, "LANG": "C.UTF-8"}
            os.execvpe("bash", ["bash", "--norc", "--noediting"], environment)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, COLUMNS, 0, 0))

    def read(self) -> bool:
        """Feed the screen what was printed since, and return whether there was anything."""
        if not select.select([self.fd], [], [], 0.02)[0]:
            return False
        self._stream.feed(os.read(self.fd, 65536))
        return True

    @property
    def text(self) -> str:
        """The screen's text."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def rows(self) -> list[Row]:
        """Return the screen's rows as runs of equally styled characters."""
        rows: list[Row] = []
        for y in range(self.screen.lines):
            row: Row = []
            for x in range(COLUMNS):
                cell = self.screen.buffer[y][x]
                style = (cell.fg, cell.bold)
                if row and row[-1][1:] == style:
                    row[-1] = (row[-1][0] + cell.data, *style)
                else:
                    row.append((cell.data, *style))
            rows.append(row)
        return rows


class Recorder:
    """Both terminals, and the frames recorded so far."""

    def __init__(self, folder: str) -> None:
        self.chat = Terminal(CHAT_ROWS, folder)
        self.shell = Terminal(SHELL_ROWS, folder)
        self.frames: list[Frame] = []
        self._last = time.monotonic()

    def pump(self) -> None:
        """Read both terminals once, and record a frame if a screen changed."""
        changed = [terminal.read() for terminal in (self.chat, self.shell)]
        if any(changed):
            now = time.monotonic()
            self._add(min(now - self._last, LONGEST_PAUSE))
            self._last = now

    def pause(self, seconds: float) -> None:
        """Show the present frame for some seconds longer."""
        self._add(seconds)
        self._last = time.monotonic()

    def wait(self, condition: Callable[[], bool]) -> None:
        """Record until the condition holds.

        Raises:
            TimeoutError: It did not hold in time.
        """
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f"the session stopped at:\n{self.chat.text}\n{self.shell.text}")
            self.pump()

    def type(self, terminal: Terminal, line: str) -> None:
        """Type a line, character by character."""
        for character in line + "\r":
            os.write(terminal.fd, character.encode())
            end = time.monotonic() + 0.04
            while time.monotonic() < end:
                self.pump()

    def _add(self, seconds: float) -> None:
        if self.frames:
            self.frames[-1] = (self.frames[-1][0] + seconds, self.frames[-1][1])
        rows = [*self.chat.rows(), *self.shell.rows()]
        if not self.frames or self.frames[-1][1] != rows:
            self.frames.append((0.0, rows))


def child_of(pid: int) -> int:
    """Return the process that a shell runs in the foreground."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def record(folder: str) -> list[Frame]:
    """Play the session: transfer, approval, `kill -9`, and resume in a new process."""
    recorder = Recorder(folder)
    chat, shell = recorder.chat, recorder.shell
    recorder.wait(lambda: "$" in chat.text and "$" in shell.text)
    recorder.pause(0.6)
    recorder.type(chat, "baton chat desk:runner --store runs.db --thread u42")
    recorder.wait(lambda: "you ›" in chat.text)
    recorder.type(chat, "My lamp arrived broken. Please refund order A-17.")
    recorder.wait(lambda: "and a reason ›" in chat.text)
    recorder.pause(1.6)
    recorder.type(shell, f"kill -9 {child_of(chat.pid)}")
    recorder.wait(lambda: "Killed" in chat.text)
    recorder.pause(1.4)
    recorder.type(shell, "baton runs ls --store runs.db")
    recorder.wait(lambda: "suspended" in shell.text)
    recorder.pause(1.8)
    recorder.type(chat, "clear; baton chat desk:runner --store runs.db --thread u42")
    recorder.wait(lambda: "resume it?" in chat.text)
    recorder.pause(1.2)
    recorder.type(chat, "y")
    recorder.wait(lambda: "and a reason ›" in chat.text)
    recorder.pause(1.2)
    recorder.type(chat, "y")
    recorder.wait(lambda: "I have paid back" in chat.text and chat.text.rstrip().endswith("you ›"))
    recorder.pause(4.0)
    for terminal in (chat, shell):
        os.kill(terminal.pid, signal.SIGHUP)
        os.waitpid(terminal.pid, 0)
    return recorder.frames


def main() -> None:
    """Record the session and write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "desk.py").write_text((FOLDER / "desk.py").read_text())
        frames = record(folder)
    PICTURE.write_text(render(frames, COLUMNS, split=CHAT_ROWS), encoding="utf-8")
    print(f"{PICTURE.name}: {len(frames)} frames, {PICTURE.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
