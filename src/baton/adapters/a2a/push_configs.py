"""Where a task's subscribers are kept: in the store, as a log beside the run, so that any replica has them."""

from time import time
from typing import Any, NamedTuple, cast
from uuid import uuid4

from a2a.types.a2a_pb2 import TaskPushNotificationConfig
from a2a.utils.constants import PROTOCOL_VERSION_1_0
from google.protobuf.json_format import MessageToDict, ParseDict

from ...errors import RunConflict, RunExistsError
from ...events import NOBODY, RunStarted, Stepped, decode_lines, encode_event, encode_head
from ...stores import Store

_PREFIX = "a2a-push:"
_ATTEMPTS = 5
_VERSION = "version"


def is_push_log(run_id: str) -> bool:
    """Whether this is not a run at all, but the log of who wants to be told about one."""
    return run_id.startswith(_PREFIX)


class Subscriber(NamedTuple):
    """Who wants to be told, and in which version of the protocol."""

    config: TaskPushNotificationConfig
    version: str


class PushConfigs:
    """Reads and writes them. What was written last about an id counts; nothing is taken out of a log."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def all(self, task_id: str) -> list[TaskPushNotificationConfig]:
        """Those of one task, the oldest first."""
        return [each.config for each in await self.subscribers(task_id)]

    async def subscribers(self, task_id: str) -> list[Subscriber]:
        """Who wants to be told of one task, the oldest first."""
        kept: dict[str, Subscriber] = {}
        if await self.store.record(_PREFIX + task_id) is None:
            return []
        for event in decode_lines(await self.store.load(_PREFIX + task_id)):
            if isinstance(event, Stepped):
                kept.pop(event.name, None)
                if event.value is not None:
                    kept[event.name] = _read(cast("dict[str, Any]", event.value))
        return [*kept.values()]

    async def put(
        self, task_id: str, config: TaskPushNotificationConfig, version: str = PROTOCOL_VERSION_1_0
    ) -> TaskPushNotificationConfig:
        """Keep one; it gets an id if it has none."""
        kept = TaskPushNotificationConfig()
        kept.CopyFrom(config)
        kept.task_id, kept.id = task_id, config.id or str(uuid4())
        await self._write(task_id, kept.id, {**MessageToDict(kept), _VERSION: version})
        return kept

    async def drop(self, task_id: str, id: str) -> None:
        """Forget one."""
        await self._write(task_id, id, None)

    async def _write(self, task_id: str, id: str, value: Any) -> None:
        run_id, store = _PREFIX + task_id, self.store
        for attempt in range(_ATTEMPTS):
            record = await store.record(run_id)
            if record is None:
                started = RunStarted("run", NOBODY, time(), run_id, "")
                try:
                    lease = await store.create(run_id, [encode_head(), encode_event(started)])
                    await store.append(run_id, 2, (), status="completed", fence=lease.fence)
                except (RunExistsError, RunConflict):
                    continue
                record = await store.record(run_id)
            seq = 2 if record is None else record.seq
            line = encode_event(Stepped(f"push{seq}", NOBODY, time(), id, value))
            try:
                await store.append(run_id, seq, [line])
                return
            except RunConflict:
                # Somebody else wrote at the same time; it is the same log, only longer.
                if attempt == _ATTEMPTS - 1:
                    raise


def _read(value: dict[str, Any]) -> Subscriber:
    version = str(value.pop(_VERSION, PROTOCOL_VERSION_1_0))
    return Subscriber(ParseDict(value, TaskPushNotificationConfig()), version)
