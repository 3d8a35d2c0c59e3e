"""Providers on this machine: servers that speak a provider's wire format and answer as a script says.

May import every room but cli, and aiohttp. Must not speak to anything outside this machine, nor mend a bad request.
"""

from ...errors import SetupError

try:
    from .server import ProviderServer, ServerOptions
except ImportError as missing:
    raise SetupError("baton.testing.servers needs aiohttp: pip install 'baton-adk[testing]'") from missing

from .anthropic import AnthropicServer
from .base import AnswerStream, APIEndpoint
from .faults import HttpFault
from .google import GoogleServer
from .openai import OpenAIServer
from .realtime import OpenAIRealtimeServer
from .received import ReceivedRequest, RequestRejectedError, ValidRequest

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
