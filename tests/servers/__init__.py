"""Local servers with the wire formats of providers and scripted responses.

May import every package of Baton except cli, and aiohttp. Must not connect to other machines or fix invalid requests.
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
