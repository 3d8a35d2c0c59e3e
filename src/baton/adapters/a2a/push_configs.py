"""Where a task's subscribers are kept: in the store, as notes beside the run, so that any replica has them."""

from uuid import uuid4

from a2a.types.a2a_pb2 import TaskPushNotificationConfig
from google.protobuf.json_format import MessageToJson, Parse

from ...stores import Store

_PREFIX = "a2a.push/"


class PushConfigs:
    """Reads and writes them, each under its id. They go when the run goes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def all(self, task_id: str) -> list[TaskPushNotificationConfig]:
        """Those of one task, the oldest first."""
        notes = await self._store.notes(task_id)
        return [Parse(note, TaskPushNotificationConfig()) for name, note in notes.items() if name.startswith(_PREFIX)]

    async def put(self, task_id: str, config: TaskPushNotificationConfig) -> TaskPushNotificationConfig:
        """Keep one; it gets an id if it has none."""
        kept = TaskPushNotificationConfig()
        kept.CopyFrom(config)
        kept.task_id, kept.id = task_id, config.id or str(uuid4())
        await self._store.put_note(task_id, _PREFIX + kept.id, MessageToJson(kept, indent=None).encode())
        return kept

    async def drop(self, task_id: str, id: str) -> None:
        """Forget one."""
        await self._store.put_note(task_id, _PREFIX + id, None)
