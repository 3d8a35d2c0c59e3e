"""Tells subscribers about their tasks by webhook: in order, again if need be, and only where it is allowed.

Where a task's subscribers are kept: in the store, as notes beside the run, so that any replica has them.
"""

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
from .projection import STOPPED, Update, told_from

if TYPE_CHECKING:
    import httpx

_PREFIX = "a2a.push/"


class PushSubscriber(NamedTuple):
    """Who wants to be told, and in which version of the protocol."""

    config: TaskPushNotificationConfig
    version: str = PROTOCOL_VERSION_1_0


class _Note(msgspec.Struct):
    config: dict[str, Any]
    version: str


class PushConfigStore:
    """Reads and writes them, each under its id. They go when the run goes."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def all(self, task_id: str) -> list[TaskPushNotificationConfig]:
        """Those of one task, the oldest first."""
        return [each.config for each in await self.subscribers(task_id)]

    async def subscribers(self, task_id: str) -> list[PushSubscriber]:
        """Who wants to be told of one task, the oldest first."""
        notes = await self.store.notes(task_id)
        return [_read(note) for name, note in notes.items() if name.startswith(_PREFIX)]

    async def put(self, task_id: str, subscriber: PushSubscriber) -> TaskPushNotificationConfig:
        """Keep one; its configuration gets an id if it has none."""
        kept = TaskPushNotificationConfig()
        kept.CopyFrom(subscriber.config)
        kept.task_id, kept.id = task_id, subscriber.config.id or str(uuid4())
        note = msgspec.json.encode(_Note(MessageToDict(kept), subscriber.version))
        await self.store.put_note(task_id, _PREFIX + kept.id, note)
        return kept

    async def drop(self, task_id: str, id: str) -> None:
        """Forget one."""
        await self.store.put_note(task_id, _PREFIX + id, None)


def _read(note: bytes) -> PushSubscriber:
    kept = msgspec.json.decode(note, type=_Note)
    return PushSubscriber(ParseDict(kept.config, TaskPushNotificationConfig()), kept.version)


_logger = logging.getLogger("baton.a2a")
_SECONDS = 10.0
_MOST_WAITING = 1000

PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between attempts to tell a webhook."""

PushPolicy: TypeAlias = Callable[[str], Awaitable[bool]]
"""Says whether a webhook's address may be called."""


async def allow_public_urls(url: str) -> bool:
    """Whether an address is on the public net: by http or https, and nowhere private, local or reserved."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        return False
    try:
        found = await asyncio.get_running_loop().getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return bool(found) and all(_is_public(str(each[4][0])) for each in found)


async def allow_any_url(url: str) -> bool:
    """Any address by http or https, for services whose callers are all trusted."""
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
    """Sends what happens in tasks to those who asked for it. Each task has a queue of its own, so order is kept."""

    def __init__(
        self, configs: PushConfigStore, *, policy: PushPolicy = allow_public_urls, pauses: Sequence[float] = PAUSES
    ) -> None:
        self.configs = configs
        self._policy = policy
        self._pauses = pauses
        self._queues: dict[str, deque[Update]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._http: httpx.AsyncClient | None = None

    async def add(self, task_id: str, subscriber: PushSubscriber) -> TaskPushNotificationConfig:
        """Have a task's updates sent somewhere, if that is allowed, as their version of the protocol has them."""
        await self.check(subscriber.config)
        return await self.configs.put(task_id, subscriber)

    async def check(self, config: TaskPushNotificationConfig) -> None:
        """Raise InvalidParamsError if what is asked for is not allowed."""
        if not await self._policy(config.url):
            raise InvalidParamsError(message="the push url may not be called from here: give a public http(s) address")

    def tell(self, update: Update) -> None:
        """Send an update to all who want it, in the background."""
        if isinstance(update, Message):
            return
        task_id = update.id if isinstance(update, Task) else update.task_id
        queue = self._queues.get(task_id)
        if queue is None:
            queue = self._queues[task_id] = deque()
            task = asyncio.create_task(self._work(task_id, queue), name=f"baton a2a push {task_id}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if len(queue) < _MOST_WAITING or isinstance(update, TaskStatusUpdateEvent):
            queue.append(update)

    async def _work(self, task_id: str, queue: deque[Update]) -> None:
        try:
            while queue:
                subscribers = await self.configs.subscribers(task_id)
                updates = [*queue]
                queue.clear()
                for update in updates if subscribers else ():
                    await asyncio.gather(*[self._tell(each, update) for each in subscribers])
        except Exception:  # What goes wrong here must not reach the run; it is said in the log.
            _logger.exception("subscribers of task `%s` could not be told", task_id)
        finally:
            del self._queues[task_id]

    async def _tell(self, subscriber: PushSubscriber, update: Update) -> None:
        if isinstance(update, TaskArtifactUpdateEvent) and not update.last_chunk:
            return  # A webhook is not a stream: it is told of an artifact when it is there.
        if subscriber.version == PROTOCOL_VERSION_0_3:
            # Version 0.3 tells of nothing but tasks: how they stand when they stop.
            if isinstance(update, TaskStatusUpdateEvent) and update.status.state in STOPPED:
                await self._send(subscriber.config, await self._task_as_before(update.task_id), subscriber.version)
        else:
            body = MessageToJson(to_stream_response(update), indent=None)
            await self._send(subscriber.config, body, subscriber.version)

    async def _task_as_before(self, task_id: str) -> str:
        record = await self.configs.store.record(task_id)
        assert record is not None
        task = (await told_from(self.configs.store, record)).task
        return to_compat_task(task).model_dump_json(by_alias=True, exclude_none=True)

    async def _send(self, config: TaskPushNotificationConfig, body: str, version: str) -> None:
        import httpx

        for pause in (*self._pauses, None):
            # Looked at every time: what a name stands for may have changed since.
            if not await self._policy(config.url):
                _logger.warning("a webhook of task `%s` may not be called any more", config.task_id)
                return
            try:
                answer = await self._client().post(config.url, content=body, headers=_headers(config, version))
                if answer.status_code < 500 and answer.status_code not in (408, 425, 429):
                    return
            except httpx.HTTPError:
                pass  # Counts as not told.
            if pause is None:
                _logger.warning("a webhook of task `%s` could not be told after all attempts", config.task_id)
                return
            await asyncio.sleep(pause)

    def _client(self) -> "httpx.AsyncClient":
        import httpx

        if self._http is None:
            # No redirects: the policy has looked at the address, and at no other.
            self._http = httpx.AsyncClient(timeout=_SECONDS, follow_redirects=False, trust_env=False)
        return self._http

    async def close(self) -> None:
        """Stop telling."""
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
