"""Lists the tasks of one caller: those that changed last come first, and pages neither repeat nor skip one."""

from base64 import b64decode, urlsafe_b64encode
from math import ceil
from typing import Any

from a2a.types.a2a_pb2 import ListTasksRequest, ListTasksResponse, TaskState
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.errors import InvalidParamsError
from a2a.utils.task import apply_history_length, validate_history_length, validate_page_size
from google.protobuf.json_format import MessageToDict

from ...errors import StoreError
from ...events import decode_lines
from ...stores import RecordPage, RunFilters, RunRecord, RunStatus, Store, iter_records
from ...stores.paging import parse_filters as query_for
from ...stores.paging import select_page
from ..http import Principal
from .telling import TaskProjection
from .threads import context_of

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
_ONE_OF_TWO = frozenset(state for state, status in _STATUSES.items() if [*_STATUSES.values()].count(status) > 1)
"""States that share the status of a run with another: only the log tells them apart."""


async def told_from(store: Store, record: RunRecord) -> TaskProjection:
    """A stored run, told as a task, up to where the record knows it."""
    telling = TaskProjection(record.run_id, context_of(record))
    for event in decode_lines((await store.load(record.run_id))[: record.seq]):
        telling.hear(event)
    return telling


async def listed_tasks(store: Store, asked: ListTasksRequest, caller: Principal) -> ListTasksResponse:
    """The page of tasks that was asked for."""
    validate_history_length(asked)
    if asked.HasField("page_size"):
        validate_page_size(asked.page_size)
    found = await _page(store, asked, caller)
    page = ListTasksResponse(page_size=asked.page_size or DEFAULT_LIST_TASKS_PAGE_SIZE, total_size=found.total or 0)
    for record in found.records:
        task = apply_history_length((await told_from(store, record)).task, asked)
        if not asked.include_artifacts:
            task.ClearField("artifacts")
        page.tasks.append(task)
    if found.next_cursor:
        page.next_page_token = urlsafe_b64encode(found.next_cursor.encode()).decode()
    return page


def page_as_json(page: ListTasksResponse) -> dict[str, Any]:
    """A page as it goes out: it always says how many tasks there are, and what of them is not set is left out."""
    return {
        "tasks": [MessageToDict(task) for task in page.tasks],
        "nextPageToken": page.next_page_token,
        "pageSize": page.page_size,
        "totalSize": page.total_size,
    }


async def _page(store: Store, asked: ListTasksRequest, caller: Principal) -> RecordPage:
    whose = RunFilters(owner=caller.whose)
    if asked.status in _STATUSES:
        whose["status"] = [_STATUSES[asked.status]]
    wanted = whose.copy()
    size, after = asked.page_size or DEFAULT_LIST_TASKS_PAGE_SIZE, _place_in(asked.page_token)
    wanted.update(order_by="updated", limit=size, cursor=after, count_total=True)
    if asked.HasField("status_timestamp_after"):
        # Callers are told milliseconds, and ask in them.
        wanted["since"] = ceil(asked.status_timestamp_after.ToNanoseconds() / 1e6) / 1000
    try:
        if not asked.context_id and asked.status not in _ONE_OF_TWO:
            return await store.list(**wanted)
        query = query_for(wanted)
    except StoreError as error:
        if error.store:
            raise
        raise _no_such_page() from None
    # What the store cannot tell apart is looked for among all that it can.
    return select_page(
        query, [record async for record in iter_records(store, **whose) if await _fits(store, record, asked)]
    )


async def _fits(store: Store, record: RunRecord, asked: ListTasksRequest) -> bool:
    if asked.context_id and context_of(record) != asked.context_id:
        return False
    return asked.status not in _ONE_OF_TWO or (await told_from(store, record)).task.status.state == asked.status


def _place_in(token: str) -> str:
    try:
        return b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except ValueError:
        raise _no_such_page() from None


def _no_such_page() -> InvalidParamsError:
    return InvalidParamsError(message="the page token is none of this service's; begin again without one")
