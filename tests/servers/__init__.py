"""Providers on this machine: servers that speak a provider's wire format and answer as a script says.

May import every room but cli, and aiohttp. Must not speak to anything outside this machine, nor mend a bad request.
"""

from tests.servers.anthropic import AnthropicServer
from tests.servers.base import AnswerStream, APIEndpoint, HttpFault, ReceivedRequest, RequestRejectedError, ValidRequest
from tests.servers.google import GoogleServer
from tests.servers.openai import OpenAIServer
from tests.servers.realtime import OpenAIRealtimeServer
from tests.servers.server import ProviderServer, ServerOptions

__all__ = [
    "APIEndpoint",
    "AnswerStream",
    "AnthropicServer",
    "GoogleServer",
    "HttpFault",
    "OpenAIRealtimeServer",
    "OpenAIServer",
    "ProviderServer",
    "ReceivedRequest",
    "RequestRejectedError",
    "ServerOptions",
    "ValidRequest",
]
