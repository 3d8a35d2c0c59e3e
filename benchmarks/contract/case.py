"""Scripted replies, the record of a run, and the protocol of a peer: shared by probes and peers."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

TRIAGE, BILLING, SHIPPING, NOBODY = "triage", "billing", "shipping", "nobody"
"""The agents of every probe. Triage has the tools and can hand over to the others, which can hand over to triage.
There is no agent `nobody`."""
MAX_MODEL_CALLS, MAX_CPU_SECONDS = 600, 120.0
"""A probe is stopped after so many model calls, or at the next hundred after so much CPU time."""


AsyncTool: TypeAlias = Callable[..., Awaitable[str]]


class StillRunningError(Exception):
    """The framework did not stop a run by itself."""


@dataclass(frozen=True)
class Call:
    """A call of a tool in a scripted reply."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Transfer:
    """A handoff in a scripted reply; each peer encodes it as its own tool call."""

    target: str


@dataclass(frozen=True)
class Reply:
    """A scripted response of a model."""

    text: str = ""
    calls: tuple[Call | Transfer, ...] = ()


class MadeCall(NamedTuple):
    """A call of a reply as a framework reads it."""

    id: str
    name: str
    arguments: dict[str, Any]

    @property
    def json(self) -> str:
        """The arguments as JSON."""
        return json.dumps(self.arguments)

    @property
    def chat(self) -> dict[str, Any]:
        """The call in the format of OpenAI's chat completions."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.json}}


def transfer_tool(target: str) -> Call:
    """Encode a handoff as a call of the tool `transfer_to_TARGET`."""
    return Call(f"transfer_to_{target}")


@dataclass(frozen=True)
class Seen:
    """A message of a model request, with the ids of its calls and of the calls it answers."""

    role: str
    text: str = ""
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """A model request of an agent."""

    agent: str
    messages: tuple[Seen, ...]


class Script:
    """The scripted model of a probe, and the record of requests and effects.

    Args:
        replies: The replies of each agent, in order; the last one is repeated.
        folder: Where effects are kept if a process may be killed.
    """

    def __init__(self, replies: Mapping[str, Sequence[Reply]], folder: Path | None = None) -> None:
        self._replies = {name: list(steps) for name, steps in replies.items()}
        self._folder = folder
        self._effects: list[str] = []
        self._calls = 0
        self._started = time.process_time()
        self.requests: list[Request] = []

    def play(
        self, agent: str, messages: Sequence[Seen], transfer: Callable[[str], Call] = transfer_tool
    ) -> tuple[str, list[MadeCall]]:
        """Return the text and the calls of the next reply; `transfer` encodes a handoff as a call."""
        reply = self.respond(agent, messages)
        return reply.text, self.encode(reply, transfer)

    def encode(self, reply: Reply, transfer: Callable[[str], Call] = transfer_tool) -> list[MadeCall]:
        """Return the calls of a reply with ids."""
        calls: list[MadeCall] = []
        for each in reply.calls:
            call = transfer(each.target) if isinstance(each, Transfer) else each
            self._calls += 1
            calls.append(MadeCall(f"call_{self._calls}", call.name, dict(call.arguments)))
        return calls

    def respond(self, agent: str, messages: Sequence[Seen]) -> Reply:
        """Record a request and return the reply to it."""
        self.requests.append(Request(agent, tuple(messages)))
        calls, is_late = len(self.requests) - 1, time.process_time() - self._started > MAX_CPU_SECONDS
        if calls == MAX_MODEL_CALLS or (is_late and calls and calls % 100 == 0):
            raise StillRunningError(f"still running after {calls} model calls")
        steps = self._replies[agent]
        return steps.pop(0) if len(steps) > 1 else steps[0]

    def act(self, effect: str) -> None:
        """Record an effect of a tool."""
        if self._folder is None:
            self._effects.append(effect)
            return
        with (self._folder / "effects").open("a") as file:
            file.write(f"{effect}\n")
            file.flush()
            os.fsync(file.fileno())

    @property
    def effects(self) -> list[str]:
        """The effects so far, in order."""
        if self._folder is None:
            return self._effects
        path = self._folder / "effects"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def look_up(self, order: str) -> str:
        """Look an order up."""
        self.act("look_up")
        return f"order {order} is paid"

    def reserve(self, item: str) -> str:
        """Reserve an item."""
        self.act("reserve")
        return f"{item} is reserved"

    def charge(self, amount: int) -> str:
        """Charge a card; the first time, kill the process afterwards."""
        self.act("charge")
        if self.effects.count("charge") == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"charged {amount}"

    def tools(self) -> tuple[AsyncTool, AsyncTool, AsyncTool]:
        """Return `look_up`, `reserve` and `charge` as async functions, for the tools of triage."""

        async def look_up(order: str) -> str:
            """Look an order up."""
            return self.look_up(order)

        async def reserve(item: str) -> str:
            """Reserve an item."""
            return self.reserve(item)

        async def charge(amount: int) -> str:
            """Charge a card."""
            return self.charge(amount)

        return look_up, reserve, charge


class Peer(Protocol):
    """A framework behind the probes.

    Its agents are `TRIAGE` and the others, and their model is the script's.
    Tools of triage: `look_up(order)`, `reserve(item)`, `charge(amount)` and, where a tool can ask a person,
    `ask_first()`, which acts ("before"), asks, and acts ("after").
    """

    distribution: str
    handoffs: str
    """The way the team is made, in a few words."""
    notes: Mapping[str, str]
    """Options that a probe uses, or that would change its outcome, by probe."""
    missing: Mapping[str, str]
    """Probes that the framework has no feature for, and what it has instead."""

    async def converse(self, script: Script, *messages: str) -> list[str]:
        """Send messages of one conversation, one after the other; return the answers."""
        ...

    async def start(self, script: Script, folder: Path) -> None:
        """Run `charge` with the framework's persistence in a folder; the tool kills the process."""
        ...

    async def resume(self, script: Script, folder: Path) -> str:
        """Continue after the crash as the framework documents it; return what that was."""
        ...

    async def interrupt(self, script: Script) -> str:
        """Run `ask_first`, answer its question with "yes", and return the final answer."""
        ...
