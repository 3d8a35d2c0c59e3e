"""Where a task's subscribers are kept: in the store, as notes beside the run, so that any replica has them."""

from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
from a2a.types.a2a_pb2 import TaskPushNotificationConfig
from a2a.utils.constants import PROTOCOL_VERSION_1_0
from google.protobuf.json_format import MessageToDict, ParseDict

from ...stores import Store

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
