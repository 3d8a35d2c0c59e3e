"""OpenAI on this machine: Chat Completions, Responses and the list of models.

May import the rest of servers. Must not import the `openai` package: what it would accept is for the tests to show.
"""

from tests.servers.openai.server import OpenAIServer

__all__ = ["OpenAIServer"]
