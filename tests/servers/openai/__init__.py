"""A local server with OpenAI's Chat Completions, Responses and list of models.

May import the rest of servers. Must not import the `openai` package: the tests compare the server with it.
"""

from tests.servers.openai.server import OpenAIServer

__all__ = ["OpenAIServer"]
