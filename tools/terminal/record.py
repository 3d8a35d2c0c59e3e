"""Record the program of the README in two terminals: `make pictures`.

The upper terminal runs `baton chat`; the lower one kills it with `kill -9`. The program is the one in README.md, and a
local server answers in place of OpenAI. Everything shown is what the programs printed; pauses are shortened. Writes the
session as an animation, and its end as a still picture.
"""

import asyncio
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
from collections.abc import Callable, Mapping
from pathlib import Path

import pyte
from tests.architecture.test_fences import fences_in
from tests.servers import OpenAIServer

from tools.terminal.story import ANSWER, CHAT, QUESTION, STEPS
from tools.terminal.svg import Frame, Row, render, render_still

REPOSITORY = Path(__file__).parents[2]
IMAGES = REPOSITORY / "docs" / "images"
ANIMATION, STILL = IMAGES / "terminal.svg", IMAGES / "resumed.svg"
COLUMNS = 74
CHAT_ROWS, SHELL_ROWS = 22, 2
LONGEST_PAUSE = 0.7
PATIENCE = 60.0


class Terminal:
    """A shell in a pseudo-terminal, and its screen."""

    def __init__(self, rows: int, folder: str, variables: Mapping[str, str]) -> None:
        self.screen = pyte.Screen(COLUMNS, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            paths = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            environment = {"PATH": paths, "PS1": "$ ", "TERM": "xterm-256color", "HOME": folder, "LANG": "C.UTF-8"}
            os.execvpe("bash", ["bash", "--norc", "--noediting"], {**environment, **variables})
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

    def __init__(self, folder: str, variables: Mapping[str, str]) -> None:
        self.chat = Terminal(CHAT_ROWS, folder, variables)
        self.shell = Terminal(SHELL_ROWS, folder, variables)
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

    def type(self, terminal: Terminal, text: str) -> None:
        """Type a text, character by character."""
        for character in text:
            os.write(terminal.fd, character.encode())
            end = time.monotonic() + 0.04
            while time.monotonic() < end:
                self.pump()

    def enter(self, terminal: Terminal, line: str) -> None:
        """Type a line and press Enter."""
        self.type(terminal, f"{line}\r")

    def _add(self, seconds: float) -> None:
        if self.frames:
            self.frames[-1] = (self.frames[-1][0] + seconds, self.frames[-1][1])
        rows = [*self.chat.rows(), *self.shell.rows()]
        if not self.frames or self.frames[-1][1] != rows:
            self.frames.append((0.0, rows))


def child_of(pid: int) -> int:
    """Return the process that a shell runs in the foreground."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def record(folder: str, variables: Mapping[str, str]) -> list[Frame]:
    """Play the session: handoff, approval, `kill -9`, and resume in a new process."""
    recorder = Recorder(folder, variables)
    chat, shell = recorder.chat, recorder.shell
    recorder.wait(lambda: "$" in chat.text and "$" in shell.text)
    recorder.type(chat, CHAT)
    recorder.wait(lambda: CHAT in chat.text)
    # The animation starts with a command that waits for Enter: its first frame is never empty.
    recorder.frames.clear()
    recorder.pause(0.0)
    recorder.pause(1.0)
    recorder.enter(chat, "")
    recorder.wait(lambda: "you ›" in chat.text)
    recorder.enter(chat, QUESTION)
    recorder.wait(lambda: "and a reason ›" in chat.text)
    recorder.pause(1.6)
    recorder.enter(shell, f"kill -9 {child_of(chat.pid)}")
    recorder.wait(lambda: "Killed" in chat.text)
    recorder.pause(1.8)
    recorder.enter(chat, CHAT)
    recorder.wait(lambda: "resume it?" in chat.text)
    recorder.pause(1.2)
    recorder.enter(chat, "y")
    recorder.wait(lambda: chat.text.count("and a reason ›") == 2)
    recorder.pause(1.2)
    recorder.enter(chat, "y")
    recorder.wait(lambda: ANSWER in chat.text and chat.text.rstrip().endswith("you ›"))
    recorder.pause(5.0)
    for terminal in (chat, shell):
        os.kill(terminal.pid, signal.SIGHUP)
        os.waitpid(terminal.pid, 0)
    return recorder.frames


async def record_readme() -> list[Frame]:
    """Record the first program of the README against a local server."""
    _, program = next(fences_in((REPOSITORY / "README.md").read_text(encoding="utf-8")))
    async with OpenAIServer(STEPS, delay=0.06) as server:
        variables = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": server.api_key}
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "desk.py").write_text(program, encoding="utf-8")
            frames = await asyncio.to_thread(record, folder, variables)
        server.assert_done()
    return frames


def main() -> None:
    """Record the session and write both pictures."""
    frames = asyncio.run(record_readme())
    ANIMATION.write_text(render(frames, COLUMNS, split=CHAT_ROWS), encoding="utf-8")
    STILL.write_text(render_still(frames[-1][1], COLUMNS, split=CHAT_ROWS), encoding="utf-8")
    print(f"{ANIMATION.name}: {len(frames)} frames, {ANIMATION.stat().st_size // 1024} KiB")
    print(f"{STILL.name}: {STILL.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
