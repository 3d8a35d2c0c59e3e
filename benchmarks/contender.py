"""The contenders: the module of each one, and the statements that import its library."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from benchmarks.script import Script
from benchmarks.workloads import Outcome, Workload

RunOnce = Callable[[], Awaitable[Outcome]]


class Inexpressible(Exception):
    """The library has no honest way to do this workload; the message becomes a footnote."""


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    module: str
    """Has `prepare(workload, script) -> RunOnce`. Building agents happens there and is not timed."""
    import_statement: str
    first_use_statement: str
    """The imports that a program needs before it can run an agent; lazy packages load here."""
    distribution: str = ""
    """The name to look the installed version up by."""

    def prepare(self, workload: Workload, script: Script) -> RunOnce:
        return importlib.import_module(self.module).prepare(workload, script)


BARE = Contender("bare", "benchmarks.contenders.bare", "import asyncio", "import asyncio, json")
BATON = Contender(
    "baton",
    "benchmarks.contenders.baton",
    "import batonkit",
    "from batonkit import Agent, Runner, tool",
    "batonkit",
)
PLAIN = Contender("baton, plain", "benchmarks.contenders.baton_plain", "import batonkit", "import batonkit")
"""Baton without middleware, for the workload that has one."""
PEERS = (
    Contender(
        "openai-agents",
        "benchmarks.peers.openai_agents",
        "import agents",
        "from agents import Agent, Runner, function_tool",
        "openai-agents",
    ),
    Contender(
        "pydantic-ai",
        "benchmarks.peers.pydantic_ai",
        "import pydantic_ai",
        "from pydantic_ai import Agent, Tool",
        "pydantic-ai-slim",
    ),
    Contender(
        "langgraph",
        "benchmarks.peers.langgraph",
        "import langgraph.graph",
        "from langgraph.graph import StateGraph; from langgraph.prebuilt import ToolNode",
        "langgraph",
    ),
    Contender(
        "google-adk",
        "benchmarks.peers.google_adk",
        "import google.adk",
        "from google.adk import Agent; from google.adk.runners import InMemoryRunner",
        "google-adk",
    ),
)
PEER_PACKAGES = (*(peer.distribution for peer in PEERS), "langgraph-checkpoint-sqlite")
"""The packages to install for `--peers`: the other libraries, and the store that keeps the runs of one of them."""
CONTENDERS = {contender.name: contender for contender in (BARE, BATON, *PEERS)}
