"""A local server with Anthropic's Messages API and list of models.

May import the rest of servers. Must not import the `anthropic` package: the tests compare the server with it.
"""

from tests.servers.anthropic.server import AnthropicServer

__all__ = ["AnthropicServer"]
