"""Push notifications: webhooks of tasks, stored as notes of the run, and their delivery in order and with retries."""

import asyncio
import ipaddress
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
from a2a.compat.v0_3.conversions import to_compat_task
from a2a.types.a2a_pb2 import Message, Task, TaskArtifactUpdateEvent, TaskPushNotificationConfig, TaskStatusUpdateEvent
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, VERSION_HEADER
from a2a.utils.errors import InvalidParamsError
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToDict, MessageToJson, ParseDict, ParseError
from msgspec import Struct

from ...errors import StoreError
from ...stores import SupportsNotes
from ...stores.parts import require_part
from .projection import STOPPED, TaskReader, Update

if TYPE_CHECKING:
    import httpx

_PREFIX = "a2a.push/"


class PushSubscriber(NamedTuple):
    """A webhook and the protocol version that it expects."""

    config: TaskPushNotificationConfig
    """The configuration that the client sent."""
    version: str = PROTOCOL_VERSION_1_0
    """The protocol version."""


class _StoredSubscriber(Struct, frozen=True):
    """A webhook as its note has it."""

    config: dict[str, Any]
    version: str


def _decode(task_id: str, note: bytes) -> PushSubscriber:
    try:
        stored = msgspec.json.decode(note, type=_StoredSubscriber)
        return PushSubscriber(ParseDict(stored.config, TaskPushNotificationConfig()), stored.version)
    except (msgspec.MsgspecError, UnicodeDecodeError, ParseError) as error:
        raise StoreError(f"a webhook of task `{task_id}` is damaged: {error}") from error


_logger = logging.getLogger("baton.a2a")
_TIMEOUT = 10.0
_MAX_PENDING = 1000
_MAX_ID = 200

RETRY_DELAYS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each retry of a failed webhook call."""

PushPolicy: TypeAlias = Callable[[str, Sequence[str]], Awaitable[bool]]
"""A function that returns whether a webhook URL, whose host has the given IP addresses, may be called there."""

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


async def allow_public_urls(url: str, addresses: Sequence[str]) -> bool:
    """Return whether a URL is http(s), has no user name, and its host has only public addresses.

    Args:
        url: The webhook URL.
        addresses: The IP addresses of its host; the webhook is called at one of them.
    """
    # Not the SDK's validator: it logs the URLs that clients send.
    if not await allow_any_url(url, addresses) or urlsplit(url).username is not None:
        return False
    return bool(addresses) and all(map(_is_public, addresses))


async def allow_any_url(url: str, addresses: Sequence[str]) -> bool:
    """Return whether a URL is http(s). Use it only if all clients are trusted.

    Args:
        url: The webhook URL.
        addresses: The IP addresses of its host, which do not matter.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _is_public(address: str) -> bool:
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        # Routers and NAT64 gateways pass these on to the IPv4 address inside.
        nat64 = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _NAT64 else None
        if (inner := ip.ipv4_mapped or ip.sixtofour or nat64) is not None:
            return _is_public(str(inner))
        if ip.is_site_local:
            return False
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_unspecified)


async def _resolve(url: "httpx.URL") -> tuple[str, ...]:
    """Return the IP addresses of a URL's host; none if they cannot be determined."""
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(url.raw_host.decode(), port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, OverflowError):
        return ()
    return tuple(dict.fromkeys(str(each[4][0]) for each in found))


class PushNotifier:
    """Stores the webhooks of tasks, and delivers updates to them in the order of each task."""

    def __init__(self, reader: TaskReader, *, policy: PushPolicy, delays: Sequence[float]) -> None:
        require_part(reader.store, SupportsNotes, "a2a_app()")
        self._store = reader.store
        self._reader = reader
        self._policy = policy
        self._delays = delays
        self._queues: dict[str, deque[Update]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._http: httpx.AsyncClient | None = None

    async def subscribers(self, task_id: str) -> list[PushSubscriber]:
        """Return the webhooks of a task, the oldest first."""
        notes = await self._store.notes(task_id)
        return [_decode(task_id, note) for name, note in notes.items() if name.startswith(_PREFIX)]

    async def put(self, task_id: str, subscriber: PushSubscriber) -> TaskPushNotificationConfig:
        """Store a webhook with its run and return its configuration, with an id if it had none."""
        stored = TaskPushNotificationConfig()
        stored.CopyFrom(subscriber.config)
        stored.task_id = task_id
        stored.id = subscriber.config.id or str(uuid4())
        note = msgspec.json.encode({"config": MessageToDict(stored), "version": subscriber.version})
        await self._store.put_note(task_id, _PREFIX + stored.id, note)
        return stored

    async def delete(self, task_id: str, id: str) -> None:
        """Delete a webhook."""
        if id.isprintable():  # No other id was accepted.
            await self._store.put_note(task_id, _PREFIX + id, None)

    async def check(self, config: TaskPushNotificationConfig) -> None:
        """Raise if the id or the URL of a webhook is not allowed.

        Raises:
            InvalidParamsError: The id or the URL is not allowed.
        """
        if not config.id.isprintable() or len(config.id) > _MAX_ID:
            raise InvalidParamsError(f"the id of a push configuration must be at most {_MAX_ID} printable characters")
        if await self._allowed_addresses(config.url) is None:
            raise InvalidParamsError("the push URL is not allowed; use a public http(s) URL")

    async def _allowed_addresses(self, url: str) -> tuple[str, ...] | None:
        """Return the addresses at which a URL may be called; None if it may not."""
        import httpx

        try:
            addresses = await _resolve(httpx.URL(url))
        except httpx.InvalidURL:
            return None
        return addresses if await self._policy(url, addresses) else None

    def notify(self, update: Update) -> None:
        """Send an update to the webhooks of its task, in the background."""
        if isinstance(update, Message):
            return
        task_id = update.id if isinstance(update, Task) else update.task_id
        queue = self._queues.get(task_id)
        if queue is None:
            queue = self._queues[task_id] = deque()
            task = asyncio.create_task(self._deliver(task_id, queue), name=f"baton a2a push {task_id}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if len(queue) < _MAX_PENDING or isinstance(update, TaskStatusUpdateEvent):
            queue.append(update)

    async def _deliver(self, task_id: str, queue: deque[Update]) -> None:
        try:
            while queue:
                subscribers = await self.subscribers(task_id)
                updates = [*queue]
                queue.clear()
                for update in updates if subscribers else ():
                    await asyncio.gather(*[self._send_update(subscriber, update) for subscriber in subscribers])
        except Exception:  # A failure must not affect the run.
            _logger.exception("the webhooks of task `%s` could not be notified", task_id)
        finally:
            del self._queues[task_id]

    async def _send_update(self, subscriber: PushSubscriber, update: Update) -> None:
        if isinstance(update, TaskArtifactUpdateEvent) and not update.last_chunk:
            return  # Webhooks receive complete artifacts only.
        if subscriber.version == PROTOCOL_VERSION_0_3:
            # Version 0.3 sends only tasks, when they stop.
            if isinstance(update, TaskStatusUpdateEvent) and update.status.state in STOPPED:
                await self._send(subscriber.config, await self._legacy_task(update.task_id), subscriber.version)
        else:
            body = MessageToJson(to_stream_response(update), indent=None)
            await self._send(subscriber.config, body, subscriber.version)

    async def _legacy_task(self, task_id: str) -> str:
        record = await self._store.record(task_id)
        assert record is not None
        task = (await self._reader.load(record)).task
        return to_compat_task(task).model_dump_json(by_alias=True, exclude_none=True)

    async def _send(self, config: TaskPushNotificationConfig, body: str, version: str) -> None:
        for delay in (*self._delays, None):
            # Checked before every call, because the host's addresses may have changed.
            addresses = await self._allowed_addresses(config.url)
            if addresses is None:
                _logger.warning("a webhook of task `%s` is no longer allowed", config.task_id)
                return
            if await self._post(config, body, version, addresses):
                return
            if delay is None:
                _logger.warning("a webhook of task `%s` failed after all retries", config.task_id)
                return
            await asyncio.sleep(delay)

    async def _post(
        self, config: TaskPushNotificationConfig, body: str, version: str, addresses: Sequence[str]
    ) -> bool:
        """Call a webhook at the first checked address that connects; return whether it worked."""
        import httpx

        url = httpx.URL(config.url)
        # The name is not resolved again, because another lookup may give another address (DNS rebinding).
        headers = {"Host": url.netloc.decode(), **_headers(config, version)}
        extensions = {"sni_hostname": url.raw_host.decode()} if url.scheme == "https" else {}
        for address in addresses:
            pinned = url.copy_with(host=address)
            try:
                response = await self._client().post(pinned, content=body, headers=headers, extensions=extensions)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
            except httpx.HTTPError:
                return False
            return response.status_code < 500 and response.status_code not in (408, 425, 429)
        return False

    def _client(self) -> "httpx.AsyncClient":
        import httpx

        if self._http is None:
            # No redirects: the policy has checked this URL only. No connection is used again: hosts that share an
            # address would share it, although TLS has verified one of them only.
            limits = httpx.Limits(max_keepalive_connections=0)
            self._http = httpx.AsyncClient(timeout=_TIMEOUT, follow_redirects=False, trust_env=False, limits=limits)
        return self._http

    async def close(self) -> None:
        """Cancel all deliveries and close the HTTP client."""
        for task in [*self._tasks]:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._http is not None:
            await self._http.aclose()


def _headers(config: TaskPushNotificationConfig, version: str) -> dict[str, str]:
    kind = "application/json" if version == PROTOCOL_VERSION_0_3 else "application/a2a+json"
    headers = {"Content-Type": kind, VERSION_HEADER: version}
    if config.token:
        headers["X-A2A-Notification-Token"] = config.token
    if config.HasField("authentication") and config.authentication.scheme:
        headers["Authorization"] = f"{config.authentication.scheme} {config.authentication.credentials}"
    return headers
