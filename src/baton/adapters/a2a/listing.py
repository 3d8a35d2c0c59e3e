"""Lists the tasks of one caller: those that changed last come first, and pages neither repeat nor skip one."""

from collections.abc import Sequence
from typing import Any

from a2a.types.a2a_pb2 import ListTasksRequest, ListTasksResponse, TaskState
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.errors import InvalidParamsError
from a2a.utils.task import (
    ListTasksCursor,
    apply_history_length,
    decode_list_tasks_cursor,
    encode_list_tasks_cursor,
    validate_history_length,
    validate_page_size,
)
from google.protobuf.json_format import MessageToDict

from ...events import decode_lines
from ...stores import RunRecord, RunStatus, Store, all_records
from .push_configs import is_push_log
from .telling import Telling
from .threads import context_of, is_visible

_STATUSES: dict[int, RunStatus] = {
    TaskState.TASK_STATE_SUBMITTED: "running",
    TaskState.TASK_STATE_WORKING: "running",
    TaskState.TASK_STATE_INPUT_REQUIRED: "suspended",
    TaskState.TASK_STATE_AUTH_REQUIRED: "suspended",
    TaskState.TASK_STATE_COMPLETED: "completed",
    TaskState.TASK_STATE_FAILED: "failed",
    TaskState.TASK_STATE_REJECTED: "failed",
    TaskState.TASK_STATE_CANCELED: "cancelled",
}


async def told_from(store: Store, record: RunRecord) -> Telling:
    """A stored run, told as a task."""
    telling = Telling(record.run_id, context_of(record))
    for event in decode_lines(await store.load(record.run_id)):
        telling.hear(event)
    return telling


async def listed_tasks(store: Store, asked: ListTasksRequest, owner: str) -> ListTasksResponse:
    """The page of tasks that was asked for."""
    validate_history_length(asked)
    if asked.HasField("page_size"):
        validate_page_size(asked.page_size)
    size = asked.page_size or DEFAULT_LIST_TASKS_PAGE_SIZE
    records = await _matching(store, asked, owner)
    start = _start(asked, records)
    page = ListTasksResponse(page_size=size, total_size=len(records))
    for record in records[start : start + size]:
        task = apply_history_length((await told_from(store, record)).task, asked)
        if not asked.include_artifacts:
            task.ClearField("artifacts")
        page.tasks.append(task)
    if start + size < len(records):
        page.next_page_token = encode_list_tasks_cursor(_place(records[start + size - 1]))
    return page


def page_as_json(page: ListTasksResponse) -> dict[str, Any]:
    """A page as it goes out: it always says how many tasks there are, and what of them is not set is left out."""
    return {
        "tasks": [MessageToDict(task) for task in page.tasks],
        "nextPageToken": page.next_page_token,
        "pageSize": page.page_size,
        "totalSize": page.total_size,
    }


async def _matching(store: Store, asked: ListTasksRequest, owner: str) -> list[RunRecord]:
    status = _STATUSES.get(asked.status)
    since = asked.status_timestamp_after.ToNanoseconds() if asked.HasField("status_timestamp_after") else None
    records: list[RunRecord] = []
    async for record in all_records(store, status=None if status is None else [status]):
        if is_push_log(record.run_id) or not is_visible(record, owner):
            continue
        if asked.context_id and context_of(record) != asked.context_id:
            continue
        if since is None or _nanoseconds(record) >= since:
            records.append(record)
    if status is not None:
        # Two states of a task may be one status of a run: the log tells them apart.
        records = [each for each in records if (await told_from(store, each)).task.status.state == asked.status]
    return sorted(records, key=lambda record: _place(record).sort_key(), reverse=True)


def _start(asked: ListTasksRequest, records: Sequence[RunRecord]) -> int:
    if not asked.page_token:
        return 0
    cursor = decode_list_tasks_cursor(asked.page_token)
    if cursor is None:
        raise InvalidParamsError(message="the page token is none of this service's; begin again without one")
    place = cursor.sort_key()
    return next((number for number, each in enumerate(records) if _place(each).sort_key() < place), len(records))


def _place(record: RunRecord) -> ListTasksCursor:
    return ListTasksCursor(timestamp_ns=_nanoseconds(record), task_id=record.run_id)


def _nanoseconds(record: RunRecord) -> int:
    return int(record.updated_at * 1000) * 1_000_000
