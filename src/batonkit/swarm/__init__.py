"""A drop-in replacement for OpenAI Swarm: change `swarm` to `batonkit.swarm` in the imports, and nothing else.

May import runs and the layers below. It only translates: agents, functions and clients become agents, tools and
models of Baton, and the results become Swarm's dicts.
"""

from .core import Swarm
from .types import Agent, Response, Result

__all__ = ["Agent", "Response", "Result", "Swarm"]
