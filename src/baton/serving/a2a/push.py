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
from google.protobuf.json_format import MessageToDict, MessageToJson, ParseDict

from ...stores import Store
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


class _Note(msgspec.Struct):
    config: dict[str, Any]
    version: str


class PushConfigStore:
    """The webhooks of tasks in a store; they are deleted with the run.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    async def list(self, task_id: str) -> "list[TaskPushNotificationConfig]":
        """Return the configurations of a task, the oldest first.

        Args:
            task_id: The task.
        """
        return [subscriber.config for subscriber in await self.subscribers(task_id)]

    async def subscribers(self, task_id: str) -> "list[PushSubscriber]":
        """Return the webhooks of a task, the oldest first.

        Args:
            task_id: The task.
        """
        notes = await self.store.notes(task_id)
        return [_decode(note) for name, note in notes.items() if name.startswith(_PREFIX)]

    async def put(self, task_id: str, subscriber: PushSubscriber) -> TaskPushNotificationConfig:
        """Store a webhook and return its configuration, with an id if it had none.

        Args:
            task_id: The task.
            subscriber: The webhook.
        """
        stored = TaskPushNotificationConfig()
        stored.CopyFrom(subscriber.config)
        stored.task_id, stored.id = task_id, subscriber.config.id or str(uuid4())
        note = msgspec.json.encode(_Note(MessageToDict(stored), subscriber.version))
        await self.store.put_note(task_id, _PREFIX + stored.id, note)
        return stored

    async def delete(self, task_id: str, id: str) -> None:
        """Delete a webhook.

        Args:
            task_id: The task.
            id: The id of the configuration.
        """
        await self.store.put_note(task_id, _PREFIX + id, None)


def _decode(note: bytes) -> PushSubscriber:
    stored = msgspec.json.decode(note, type=_Note)
    return PushSubscriber(ParseDict(stored.config, TaskPushNotificationConfig()), stored.version)


_logger = logging.getLogger("baton.a2a")
_TIMEOUT = 10.0
_MAX_PENDING = 1000

RETRY_DELAYS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each retry of a failed webhook call."""

PushPolicy: TypeAlias = Callable[[str], Awaitable[bool]]
"""A function that returns whether a webhook URL may be called."""


async def allow_public_urls(url: str) -> bool:
    """Return whether a URL is http(s) and its host has only public addresses.

    Args:
        url: The webhook URL.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        return False
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return bool(addresses) and all(_is_public(str(address[4][0])) for address in addresses)


async def allow_any_url(url: str) -> bool:
    """Return whether a URL is http(s). Use it only if all clients are trusted.

    Args:
        url: The webhook URL.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _is_public(address: str) -> bool:
    ip = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(ip, "ipv4_mapped", None)
    ip = mapped or ip
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_unspecified)


class PushNotifier:
    """Delivers the updates of tasks to webhooks, in the order of each task.

    Args:
        configs: The webhooks.
        reader: Loads tasks.
        policy: Decides whether a URL may be called.
        delays: Seconds before each retry.
    """

    def __init__(
        self, configs: PushConfigStore, reader: TaskReader, *, policy: PushPolicy, delays: Sequence[float]
    ) -> None:
        self.configs = configs
        self._reader = reader
        self._policy = policy
        self._delays = delays
        self._queues: dict[str, deque[Update]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._http: httpx.AsyncClient | None = None

    async def add(self, task_id: str, subscriber: PushSubscriber) -> TaskPushNotificationConfig:
        """Add a webhook to a task.

        Args:
            task_id: The task.
            subscriber: The webhook.

        Raises:
            InvalidParamsError: The URL is not allowed.
        """
        await self.check(subscriber.config)
        return await self.configs.put(task_id, subscriber)

    async def check(self, config: TaskPushNotificationConfig) -> None:
        """Raise if the URL of a webhook is not allowed.

        Args:
            config: The configuration.

        Raises:
            InvalidParamsError: The URL is not allowed.
        """
        if not await self._policy(config.url):
            raise InvalidParamsError(message="the push URL is not allowed; use a public http(s) URL")

    def notify(self, update: Update) -> None:
        """Send an update to the webhooks of its task, in the background.

        Args:
            update: The update.
        """
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
                subscribers = await self.configs.subscribers(task_id)
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
        record = await self.configs.store.record(task_id)
        assert record is not None
        task = (await self._reader.load(record)).task
        return to_compat_task(task).model_dump_json(by_alias=True, exclude_none=True)

    async def _send(self, config: TaskPushNotificationConfig, body: str, version: str) -> None:
        import httpx

        for delay in (*self._delays, None):
            # Checked before every call, because the host's addresses may have changed.
            if not await self._policy(config.url):
                _logger.warning("a webhook of task `%s` is no longer allowed", config.task_id)
                return
            try:
                response = await self._client().post(config.url, content=body, headers=_headers(config, version))
                if response.status_code < 500 and response.status_code not in (408, 425, 429):
                    return
            except httpx.HTTPError:
                pass  # Retried.
            if delay is None:
                _logger.warning("a webhook of task `%s` failed after all retries", config.task_id)
                return
            await asyncio.sleep(delay)

    def _client(self) -> "httpx.AsyncClient":
        import httpx

        if self._http is None:
            # No redirects: the policy has checked this URL only.
            self._http = httpx.AsyncClient(timeout=_TIMEOUT, follow_redirects=False, trust_env=False)
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
