"""Anthropic on this machine: the Messages API and the list of models.

May import the rest of servers. Must not import the `anthropic` package: what it would accept is for the tests to show.
"""

from tests.servers.anthropic.server import AnthropicServer

__all__ = ["AnthropicServer"]
