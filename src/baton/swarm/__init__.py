"""The door for programs written for OpenAI Swarm: change `swarm` to `baton.swarm` in the imports, and nothing else.

May import runner and what is below it. A translation only: agents, functions and clients go into the core as agents,
tools and models, and what happens comes back as Swarm's dicts. Must not run, loop or transfer anything itself.
"""

from .core import Swarm
from .types import Agent, Response, Result

__all__ = ["Agent", "Response", "Result", "Swarm"]
