"""The endpoints of the HTTP API that start, show and change runs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import asdict, replace
from starlette.requests import Request
from starlette.responses import Response

from ...context import Limits
from ...context.values import THREAD_PREFIX
from ...errors import RunExistsError, ThreadBusyError
from ...log.log import Log
from ...runs import Dismiss
from ...runs.opening import new_id, run_started_event
from ...runs.run_args import ResumeArgs, RunArgs
from ...runs.threads.waiting_messages import from_message
from ...stores import RunRecord, WaitingMessage
from ..http.auth import Principal
from ..http.http_errors import ServingError, check_interrupt_ids
from . import run_schemas as schemas
from .api_options import check_user_messages, client_run_args
from .client_options import NO_OPTIONS, ClientOptions
from .endpoints import ApiEndpoints, EndpointTable, json_response, path_id
from .event_streams import EventStreams, last_event_id
from .search import parse_search

_RESERVED_PREFIXES = ("baton.", THREAD_PREFIX)
_IDEMPOTENCY_KEY = re.compile(r"[\x20-\x7e]{1,255}")


@dataclass(eq=False)
class RunEndpoints(ApiEndpoints):
    """The endpoints that start, show and change runs."""

    client_options: ClientOptions = NO_OPTIONS
    client_history: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._streams = EventStreams(self.background, heartbeat=self.heartbeat, show_errors=self.show_errors)

    def endpoints(self) -> EndpointTable:
        """Return the endpoints by path and method."""
        return {
            "/runs": {"GET": self._list_runs, "POST": self._start_run},
            "/runs/{id}": {"GET": self._get_run, "DELETE": self._delete_run},
            "/runs/{id}/events": {"GET": self._stream_events},
            "/runs/{id}/answers": {"POST": self._answer_run},
            "/runs/{id}/resume": {"POST": self._resume_run},
            "/runs/{id}/cancel": {"POST": self._cancel_run},
            "/threads/{id}": {"GET": self._get_thread},
        }

    async def _start_run(self, principal: Principal, request: Request) -> Response:
        body = await self.guard.parse_body(request, partial(msgspec.json.decode, type=schemas.StartRunBody))
        if not self.client_history:
            check_user_messages(body.input)
        _check_values(body.values)
        key = _idempotency_key(request)
        thread = principal.to_store_id(body.thread) if body.thread else ""
        id = body.run_id or (f"key-{sha256(key.encode()).hexdigest()[:40]}" if key else new_id())
        args = RunArgs[Any](
            values=body.values,
            limits=self._limits(body.limits),
            run_id=principal.to_store_id(id),
            thread=thread or None,
            start_at=body.start_at,
            owner=principal.name,
            when_busy=body.when_busy,
        )
        args.update(client_run_args(body, self.client_options, self.background.runner.team))
        if body.when_busy != "error" and not body.thread:
            raise ServingError(422, "invalid", "`when_busy` needs a `thread`")
        if key:
            await self._start_once(body.input, args)
        else:
            await self.background.start(body.input, **args)
        return await self.run_response(principal, id, 201, {"Location": f"{request.scope['path']}/{id}"})

    async def _start_once(self, input: Any, args: RunArgs[Any]) -> None:
        """Start a run, unless an earlier request with the same idempotency key has."""
        if await self._is_repeated(input, args):
            return
        try:
            await self.background.start(input, **args)
        except (RunExistsError, ThreadBusyError):
            # The first request may have arrived at the same time.
            if not await self._is_repeated(input, args):
                raise

    async def _is_repeated(self, input: Any, args: RunArgs[Any]) -> bool:
        """Return whether the same request has started the run. Raises if it was another one."""
        expected = self.background.runner._run_started(input, args)
        if await self.store.record(expected.run_id) is not None:
            started = run_started_event(await self.background.runner.runs.events(expected.run_id))
        elif (message := await self.store.waiting(expected.run_id)) is not None:
            started, *_ = from_message(message)
        else:
            return False
        fields = ("input", "values", "thread", "limits", "owner", "options")
        if any(getattr(started, name) != getattr(expected, name) for name in fields):
            message = "a request with this `Idempotency-Key` started another run; use a new key for a new request"
            raise ServingError(422, "key_reused", message)
        return True

    async def _list_runs(self, principal: Principal, request: Request) -> Response:
        search = parse_search(request.query_params, principal, show_errors=self.show_errors)
        page = await search.find(self.store)
        runs = [schemas.to_run_view(run.record, principal, run.summary) for run in page.runs]
        return json_response(schemas.RunPage(runs=tuple(runs), next=page.next_cursor))

    async def _get_run(self, principal: Principal, request: Request) -> Response:
        return await self.run_response(principal, path_id(request, "run"))

    async def _delete_run(self, principal: Principal, request: Request) -> Response:
        record = await self.require_run(principal, path_id(request, "run"))
        if record.status == "running":
            raise ServingError(409, "run_busy", "the run is running; cancel it first")
        await self.store.delete(record.run_id)
        return Response(status_code=204)

    async def _stream_events(self, principal: Principal, request: Request) -> Response:
        after = last_event_id(request)
        record = await self.find_run(principal, path_id(request, "run"))
        return self._streams.response(request, record, after, principal)

    async def _answer_run(self, principal: Principal, request: Request) -> Response:
        id = path_id(request, "run")
        body = await self.guard.parse_body(request, partial(msgspec.json.decode, type=schemas.AnswersBody))
        record = await self.require_run(principal, id)
        if record.status != "suspended":
            raise ServingError(409, "not_suspended", f"the run is {record.status}; it has no open interrupts")
        # `resume` takes a mapping with other keys for the answer itself; here the keys are always interrupt ids.
        log = Log(await self.background.runner.runs.events(record.run_id))
        check_interrupt_ids(body.answers, log.open_interrupts())
        return await self._resume(principal, id, record, body.answers, ResumeArgs(message=body.message))

    async def _resume_run(self, principal: Principal, request: Request) -> Response:
        id = path_id(request, "run")
        parse = partial(msgspec.json.decode, type=schemas.ResumeBody)
        body = await self.guard.parse_body(request, parse, default=schemas.ResumeBody())
        args = ResumeArgs[Any](message=body.message, execute_calls=body.execute_calls)
        answers = None if body.dismiss is None else _dismissal(body.dismiss)
        return await self._resume(principal, id, await self.require_run(principal, id), answers, args)

    async def _resume(
        self, principal: Principal, id: str, record: RunRecord, answers: Any, args: ResumeArgs[Any]
    ) -> Response:
        await self.background.resume(record.run_id, answers, **args)
        return await self.run_response(principal, id, 202)

    async def _cancel_run(self, principal: Principal, request: Request) -> Response:
        id = path_id(request, "run")
        parse = partial(msgspec.json.decode, type=schemas.CancelBody)
        body = await self.guard.parse_body(request, parse, default=schemas.CancelBody())
        found = await self.find_run(principal, id)
        status = await self.background.cancel(found.run_id, body.when)
        if isinstance(found, WaitingMessage) and await self.store.record(found.run_id) is None:
            return json_response(schemas.to_waiting_detail(found, principal, status))
        return await self.run_response(principal, id)

    async def _get_thread(self, principal: Principal, request: Request) -> Response:
        id = path_id(request, "thread")
        thread = self.background.runner.thread(principal.to_store_id(id))
        runs = await thread.runs()
        waiting = await thread.waiting()
        if not runs and not waiting:
            raise ServingError(404, "not_found", "there is no such thread")
        view = schemas.ThreadView(
            id=id,
            active_agent=await thread.active_agent(),
            runs=tuple([schemas.to_run_view(record, principal) for record in runs]),
            messages=await thread.messages(),
            waiting=tuple([principal.to_public_id(message.run_id) for message in waiting]),
        )
        return json_response(view)

    def _limits(self, requested: schemas.LimitsBody | None) -> Limits | None:
        """Return the runner's limits, lowered to the requested ones."""
        if requested is None:
            return None
        limits = self.background.runner._config.limits
        own = asdict(limits)
        lower = {name: limit for name, limit in asdict(requested).items() if limit is not None}
        for name, limit in lower.items():
            lower[name] = limit if own[name] is None else min(limit, own[name])
        return replace(limits, **lower)


def _check_values(values: Mapping[str, Any]) -> None:
    for prefix in _RESERVED_PREFIXES:
        if any(key.startswith(prefix) for key in values):
            raise ServingError(422, "invalid", f"keys of `values` that begin with `{prefix}` are reserved")


def _idempotency_key(request: Request) -> str:
    key = request.headers.get("idempotency-key", "")
    if key and not _IDEMPOTENCY_KEY.fullmatch(key):
        raise ServingError(422, "invalid", "`Idempotency-Key` must be 1 to 255 visible ASCII characters")
    return key


def _dismissal(reason: str) -> Dismiss:
    """Return a dismissal whose reason the model cannot take for a result of the tool."""
    if not reason:
        return Dismiss()
    return Dismiss(f"This call was not executed. The user dismissed it and says: {reason}")
