"""The client of an A2A service: its bindings, credentials and failures."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from importlib.util import find_spec
from inspect import isawaitable
from ipaddress import ip_address
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import urlsplit

import httpx
from a2a.client import Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.card_resolver import A2ACardResolver
from a2a.client.errors import A2AClientError, A2AClientTimeoutError
from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import TransportProtocol
from a2a.utils.errors import A2AError, InvalidAgentResponseError
from google.protobuf.json_format import ParseError

from .._propagation import inject_trace

_CONNECT_TIMEOUT = 10.0
_HTTP_BINDINGS = [TransportProtocol.JSONRPC, TransportProtocol.HTTP_JSON]
_GRPC_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 3000),
)
_UNAVAILABLE_STATUSES = frozenset((404, 408, 425, 429))
_UNAVAILABLE_CODES = frozenset(("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "CANCELLED", "UNKNOWN"))

Credentials: TypeAlias = str | Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""A bearer token, or a function that returns headers and is called for each request."""


class A2AServiceClient:
    """A client of one service, for one event loop."""

    def __init__(
        self,
        url_or_card: str | pb.AgentCard,
        *,
        auth: Credentials | None,
        headers: Mapping[str, str],
        timeout: float,
        trusted_origins: Sequence[str] = (),
    ) -> None:
        self._url = url_or_card if isinstance(url_or_card, str) else ""
        self._auth = auth
        self._headers = headers
        self._trusted = {origin_of(url) for url in (self._url, *trusted_origins) if url}
        # Responses may take long; a connection is established quickly or not at all.
        self._http = httpx.AsyncClient(timeout=httpx.Timeout(timeout, connect=_CONNECT_TIMEOUT))
        self._timeout = timeout
        self._channel: Any = None
        """The `grpc.aio` channel, if gRPC is used."""
        self._sdk_client: Client | None = None
        self.card: pb.AgentCard | None = url_or_card if isinstance(url_or_card, pb.AgentCard) else None

    async def _call_context(self, *, is_stream: bool = False) -> ClientCallContext:
        """Return the context of one call, which has its headers. Redirects are not followed."""
        # HTTP clients have their own time limits; the time limit of a gRPC stream would be that of the whole stream.
        timeout = None if self._channel is None or is_stream else self._timeout
        return ClientCallContext(service_parameters=await self._credentials(), timeout=timeout)

    async def _credentials(self) -> dict[str, str]:
        headers = dict(self._headers)
        if isinstance(self._auth, str):
            headers["Authorization"] = f"Bearer {self._auth}"
        elif self._auth is not None:
            credentials = self._auth()
            headers.update(await credentials if isawaitable(credentials) else credentials)
        inject_trace(headers)
        return headers

    async def client(self) -> Client:
        """Return the SDK's client; the card is fetched on first use.

        Raises:
            A2AError: The card cannot be fetched or used.
        """
        if self._sdk_client is None:
            arguments = {"headers": await self._credentials()}
            with reporting_invalid_responses():
                if self.card is None:
                    self.card = await A2ACardResolver(self._http, self._url).get_agent_card(http_kwargs=arguments)
                self._sdk_client = self._create_client(self._with_trusted_interfaces(self.card))
        return self._sdk_client

    def _create_client(self, card: pb.AgentCard) -> Client:
        offered = [each.protocol_binding for each in card.supported_interfaces]
        bindings = [each for each in _HTTP_BINDINGS if each in offered] or [TransportProtocol.GRPC]
        if bindings[0] == TransportProtocol.GRPC and TransportProtocol.GRPC not in offered:
            offers = ", ".join(offered) or "no interfaces"
            known = ", ".join([*_HTTP_BINDINGS, TransportProtocol.GRPC])
            raise InvalidAgentResponseError(f"the agent card offers {offers}; this client speaks {known}")
        if bindings[0] == TransportProtocol.GRPC and find_spec("grpc") is None:
            needed = "which needs grpcio: pip install 'a2a-sdk[grpc]'"
            raise InvalidAgentResponseError(f"the agent card offers gRPC only, {needed}")
        config = ClientConfig(
            httpx_client=self._http,
            grpc_channel_factory=self._open_channel,
            supported_protocol_bindings=[*bindings],
            streaming=self.supports_streaming,
            polling=not self.supports_streaming,
        )
        return ClientFactory(config).create(card)

    def _open_channel(self, url: str) -> Any:
        import grpc
        from grpc import aio

        origin = origin_of(url)
        if not origin:
            raise InvalidAgentResponseError(f"the agent card names `{url}`, which is not a gRPC address")
        parts = urlsplit(origin)
        target = parts.netloc if parts.port else f"{parts.netloc}:{443 if parts.scheme == 'https' else 80}"
        if parts.scheme == "https":
            self._channel = aio.secure_channel(target, grpc.ssl_channel_credentials(), options=_GRPC_OPTIONS)
        else:
            self._channel = aio.insecure_channel(target, options=_GRPC_OPTIONS)
        return self._channel

    async def _connect(self) -> None:
        """Connect the gRPC channel; a failed call would not say whether the request was sent."""
        if self._channel is None:
            return
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                while (state := self._channel.get_state(try_to_connect=True)).name != "READY":
                    if state.name in ("TRANSIENT_FAILURE", "SHUTDOWN"):
                        raise NotConnectedError("could not connect")
                    await self._channel.wait_for_state_change(state)
        except TimeoutError:
            raise NotConnectedError("could not connect in time") from None

    def _with_trusted_interfaces(self, card: pb.AgentCard) -> pb.AgentCard:
        """Return the card without interfaces that must not get the credentials."""
        if self._auth is None and not self._headers:
            return card
        interfaces = [each for each in card.supported_interfaces if origin_of(each.url) in self._trusted]
        trusted = pb.AgentCard()
        trusted.CopyFrom(card)
        del trusted.supported_interfaces[:]
        trusted.supported_interfaces.extend(interfaces)
        if card.supported_interfaces and not interfaces:
            named = sorted({origin_of(each.url) or each.url for each in card.supported_interfaces})
            raise InvalidAgentResponseError(
                f"the agent card names other origins than {', '.join(sorted(self._trusted))}, which alone get "
                f"auth= and headers=; if these are the service's own, pass trusted_origins={named}"
            )
        return trusted

    @property
    def supports_streaming(self) -> bool:
        """True if the service streams updates."""
        return self.card is not None and self.card.capabilities.streaming

    async def send(self, message: pb.Message) -> AsyncGenerator[pb.StreamResponse]:
        """Send a message and yield the responses; without streaming, one task that must be polled."""
        client = await self.client()
        request = pb.SendMessageRequest(message=message)
        await self._connect()
        context = await self._call_context(is_stream=self.supports_streaming)
        async for response in self._responses(client.send_message(request, context=context)):
            yield response

    async def subscribe(self, task_id: str) -> AsyncGenerator[pb.StreamResponse]:
        """Yield the current state of a task, and its updates if the service streams."""
        client = await self.client()
        if not self.supports_streaming:
            yield pb.StreamResponse(task=await self.get(task_id))
            return
        request = pb.SubscribeToTaskRequest(id=task_id)
        context = await self._call_context(is_stream=True)
        async for response in self._responses(client.subscribe(request, context=context)):
            yield response

    async def _responses(self, responses: AsyncIterator[pb.StreamResponse]) -> AsyncGenerator[pb.StreamResponse]:
        # The SDK's nested generators close the response only when they are garbage-collected.
        async with aclosing(cast("AsyncGenerator[pb.StreamResponse]", responses)) as stream:
            while True:
                try:
                    with reporting_invalid_responses():
                        async with asyncio.timeout(None if self._channel is None else self._timeout):
                            response = await anext(stream)
                except StopAsyncIteration:
                    return
                except TimeoutError as error:
                    raise A2AClientTimeoutError(f"no data for {self._timeout} seconds") from error
                yield response

    async def get(self, task_id: str) -> pb.Task:
        """Return the current state of a task."""
        client = await self.client()
        context = await self._call_context()
        with reporting_invalid_responses():
            return await client.get_task(pb.GetTaskRequest(id=task_id), context=context)

    async def cancel(self, task_id: str) -> None:
        """Cancel a task."""
        client = await self.client()
        context = await self._call_context()
        with reporting_invalid_responses():
            await client.cancel_task(pb.CancelTaskRequest(id=task_id), context=context)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()
        if self._channel is not None:
            await self._channel.close()


_ORIGIN_SCHEMES = {"http": ("http", 80), "https": ("https", 443), "grpc": ("http", 80), "grpcs": ("https", 443)}


def origin_of(url: str) -> str:
    """Return the origin of a URL, or of a gRPC address; "" if it has none."""
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        host = parts.hostname or ""
        port = parts.port
    except ValueError:
        return ""
    scheme = parts.scheme or ("grpc" if _is_loopback(host) else "grpcs")
    if not host or scheme not in _ORIGIN_SCHEMES:
        return ""
    scheme, default = _ORIGIN_SCHEMES[scheme]
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}" if port in (None, default) else f"{scheme}://{shown}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class NotConnectedError(A2AClientError):
    """No connection could be made, so nothing was sent."""


_CONNECT_ERRORS = (NotConnectedError, httpx.ConnectError, httpx.ConnectTimeout)


@contextmanager
def reporting_invalid_responses() -> Generator[None]:
    """Convert the SDK's errors for responses that it cannot parse or that refuse the request.

    Raises:
        InvalidAgentResponseError: The response cannot be used; asking again will not help.
    """
    try:
        yield
    except A2AClientError as error:
        failure = _failure_of(error)
        if failure == "unavailable":
            raise
        reason = "refused the request" if failure == "refused" else "sent an invalid response"
        raise InvalidAgentResponseError(f"the service {reason}: {error.message}") from error
    except (A2AError, TimeoutError, OSError):
        raise
    except _PARSE_ERRORS as error:
        details = f"{type(error).__name__}: {error}"[:500]
        raise InvalidAgentResponseError(f"the service sent an invalid response: {details}") from error


_PARSE_ERRORS = (ParseError, ValueError, TypeError, LookupError, AttributeError, RecursionError, httpx.InvalidURL)
"""The exceptions of the SDK and of protobuf for invalid messages, and of httpx for an invalid URL in a card."""


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _failure_of(error: A2AClientError) -> Literal["unavailable", "refused", "invalid"]:
    """Distinguish an unavailable service from a refusal and from a broken protocol."""
    for cause in _causes(error):
        match cause:
            case NotConnectedError() | A2AClientTimeoutError():
                return "unavailable"
            case httpx.HTTPStatusError():
                status = cause.response.status_code
                return "unavailable" if status >= 500 or status in _UNAVAILABLE_STATUSES else "refused"
            case httpx.DecodingError() | httpx.UnsupportedProtocol():
                return "invalid"
            case httpx.HTTPError():
                return "unavailable"
            case _ if callable(code := getattr(cause, "code", None)):  # An error of gRPC.
                return "unavailable" if getattr(code(), "name", "") in _UNAVAILABLE_CODES else "refused"
            case _:
                pass
    return "invalid"


def is_connect_error(error: A2AClientError) -> bool:
    """Return whether there was no connection, so that the request cannot have arrived."""
    return any(isinstance(cause, _CONNECT_ERRORS) for cause in _causes(error))
