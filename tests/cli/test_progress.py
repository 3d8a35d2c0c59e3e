"""While a run is in progress, a spinner shows what is done and for how long; only in a terminal that can show it."""

import io

from rich.console import Console

from batonkit.cli.progress import Spinner


class Clock:
    """A clock that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def spinner(*, width: int = 80, term: str = "xterm") -> tuple[Spinner, io.StringIO, Clock]:
    """Return a spinner, what it writes, and its clock."""
    file, clock = io.StringIO(), Clock()
    console = Console(file=file, force_terminal=True, width=width, _environ={"TERM": term})
    return Spinner(console, clock), file, clock


def test_the_spinner_appears_when_nothing_was_written_for_a_moment() -> None:
    progress, file, clock = spinner()
    progress.set("Router")
    progress.draw()
    assert file.getvalue() == ""
    clock.now = 65.0
    progress.draw()
    assert file.getvalue() == "⠋ Router  1:05 "
    progress.clear()
    assert file.getvalue().endswith("\r\x1b[K")
    progress.draw()
    assert file.getvalue().endswith("\r\x1b[K")


def test_typed_text_after_the_spinner_stays_in_place() -> None:
    progress, file, clock = spinner()
    progress.set("Router")
    clock.now = 1.0
    progress.draw()
    clock.now = 9.5
    progress.draw()
    first, second = file.getvalue().split("\x1b7\r")
    assert second.endswith("\x1b8")
    assert len(second.removesuffix("\x1b8")) == len(first)
    progress.leave("hello")
    assert file.getvalue().endswith("\x1b[A\r\x1b[Khello\n")


def test_a_typed_line_that_was_wrapped_is_left_alone() -> None:
    progress, file, clock = spinner(width=20)
    clock.now = 1.0
    progress.draw()
    before = file.getvalue()
    progress.leave("a line that needs two of them")
    assert file.getvalue() == before


def test_no_spinner_is_drawn_in_an_incomplete_line() -> None:
    progress, file, clock = spinner()
    progress.clear(is_midline=True)
    clock.now = 5.0
    progress.draw()
    assert file.getvalue() == ""


async def test_a_dumb_terminal_gets_no_spinner() -> None:
    progress, file, clock = spinner(term="dumb")
    clock.now = 5.0
    async with progress.running():
        clock.now = 10.0
    assert file.getvalue() == ""
