"""`baton serve` and `baton studio` in processes of their own."""

import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from socket import create_connection
from time import sleep

from tests.ports import free_port

TEAM = """\
from pathlib import Path

from batonkit import Agent, Runner, tool
from batonkit.serve import BearerAuth
from batonkit.testing import ScriptedModel, call


@tool
async def pay(euros: int) -> str:
    \"\"\"Pay.\"\"\"
    with Path("paid").open("a") as paid:
        paid.write(f"{euros}\\n")
    return "paid"


instructions = "SECRET-INSTRUCTIONS"
desk = Agent(
    "Desk",
    description="SECRET-DESCRIPTION",
    instructions=instructions,
    tools=[pay],
    model=ScriptedModel(["SECRET-ANSWER"], cycle=True),
)
auth = BearerAuth({"token-of-ann": "ann", "token-of-bob": "bob"})
"""
"""A team whose tool leaves a file, and what strangers must not read."""


class Served:
    """A server in a process of its own.

    Args:
        port: The port that it listens on.
        printed: What it printed until it was ready.
    """

    def __init__(self, port: int, printed: str) -> None:
        self.port = port
        self.printed = printed

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def sign_in_url(self) -> str:
        """The URL that opens Studio once."""
        found = re.search(r"http://\S+token=\S+", self.printed)
        assert found, self.printed
        return found[0]


@contextmanager
def serving(folder: Path, *arguments: str, ready: str) -> Generator[Served]:
    """Run a command of `baton` that serves, in a folder, until the block ends.

    Args:
        folder: The current folder of the process.
        arguments: The command and its arguments, without the port.
        ready: A text in the last line that the command prints before it serves.
    """
    port = free_port()
    command = [sys.executable, "-m", "batonkit", *arguments, "--port", str(port)]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        printed = ""
        while ready not in printed:
            line = process.stderr.readline()
            assert line, printed
            printed += line
        _wait_until_listening(process, port)
        yield Served(port, printed)
    finally:
        process.kill()
        process.communicate()


def _wait_until_listening(process: "subprocess.Popen[str]", port: int) -> None:
    while True:
        try:
            create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            assert process.poll() is None, "the server has ended"
            sleep(0.02)
