"""The endpoints of the HTTP API for developers: logs and requests as recorded, the team, forks and replays."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from ...agents import AgentOptions
from ...errors import BatonError, ReplayMismatchError, RunError, SetupError
from ...inspection.comparison import compare_runs
from ...inspection.recorded_tests import write_test
from ...inspection.shown_requests import related_keys, view_compared, view_request
from ...inspection.teams import TeamDescription, describe_team
from ...log import AgentResponded, Event, RunFailed, RunStarted
from ...models import ModelSettings, resolve_model
from ...runs.answers import fork_events
from ...runs.opening import new_id, run_started_event
from ...runs.run_args import ResumeArgs
from ...runs.run_options import given_options
from ...stores import RunRecord
from ..http.auth import Principal
from ..http.downloads import attachment_headers
from ..http.http_errors import ServingError
from . import run_schemas as schemas
from .endpoints import ApiEndpoints, EndpointTable, compressed_response, json_response, parse_int, path_id
from .inspection_schemas import (
    MAX_LOG_PAGE,
    ExportedRun,
    ForkBody,
    LogEntry,
    LogPage,
    RecordedTest,
    ReplayVerdict,
    RequestEntry,
    RequestList,
)


@dataclass(eq=False)
class InspectionEndpoints(ApiEndpoints):
    """The endpoints that show runs as recorded, and fork and replay them."""

    def endpoints(self) -> EndpointTable:
        """Return the endpoints by path and method."""
        return {
            "/team": {"GET": self._get_team},
            "/runs/{id}/log": {"GET": self._read_log},
            "/runs/{id}/reads": {"GET": self._list_requests},
            "/runs/{id}/reads/{key:path}": {"GET": self._get_request},
            "/runs/{id}/export": {"GET": self._export},
            "/runs/{id}/test": {"GET": self._get_test},
            "/runs/{id}/fork": {"POST": self._fork},
            "/runs/{id}/replay": {"POST": self._replay},
            "/runs/{id}/compare/{other}": {"GET": self._compare},
        }

    def describe_team(self) -> TeamDescription:
        """Return the team that is served, as data."""
        return describe_team(self.background.runner.team)

    async def _get_team(self, principal: Principal, request: Request) -> Response:
        return json_response(self.describe_team())

    async def _read_log(self, principal: Principal, request: Request) -> Response:
        query = request.query_params
        after = parse_int(query.get("after", "0"), "after", minimum=0, maximum=10**15)
        limit = parse_int(query.get("limit", str(MAX_LOG_PAGE)), "limit", minimum=1, maximum=MAX_LOG_PAGE)
        types = {name for text in query.getlist("types") for name in text.split(",") if name}
        record = await self.require_run(principal, path_id(request, "run"))
        lines = await self._lines(principal, record, after)
        entries: list[LogEntry] = []
        number = after
        for number, line in enumerate(lines, after + 1):
            if len(entries) == limit:
                number -= 1
                break
            if not types or _type_of(line) in types:
                entries.append(LogEntry(number, msgspec.Raw(_without_request(line))))
        page = LogPage(tuple(entries), number if number < after + len(lines) else None)
        return compressed_response(request, msgspec.json.encode(page))

    async def _lines(self, principal: Principal, record: RunRecord, after: int) -> Sequence[bytes]:
        """Return the events of a log after a number, as JSON."""
        if not principal.prefix:
            return await self.store.load(record.run_id, start=after + 1)
        events = await self.background.runner.runs.events(record.run_id)
        return [schemas.encode_logged_event(event, principal) for event in events[after:]]

    async def _list_requests(self, principal: Principal, request: Request) -> Response:
        record, events = await self._load(principal, path_id(request, "run"))
        found = await self.background.runner.runs.requests(record.run_id)
        entries = [
            RequestEntry(
                view.key, view.agent, view.model, view.policy, len(view.messages), len(view.tools), view.tokens
            )
            for view in map(view_request, found.values())
        ]
        responses = [event for event in events if isinstance(event, AgentResponded) and event.model]
        unrecorded = [event.key for event in responses if event.key not in found]
        body = RequestList(tuple(entries), tuple(unrecorded))
        return compressed_response(request, msgspec.json.encode(body))

    async def _get_request(self, principal: Principal, request: Request) -> Response:
        record, events = await self._load(principal, path_id(request, "run"))
        key = request.path_params["key"]
        found = await self.background.runner.runs.requests(record.run_id, keys=related_keys(events, key))
        if key not in found:
            raise ServingError(404, "not_found", "the log has no recorded request for this response")
        return compressed_response(request, msgspec.json.encode(view_compared(found, events, key)))

    async def _export(self, principal: Principal, request: Request) -> Response:
        record, events = await self._load(principal, path_id(request, "run"))
        exported = await self.export(principal, record, events)
        response = compressed_response(request, msgspec.json.encode(exported))
        response.headers.update(attachment_headers(f"{exported.run.id}.json"))
        return response

    async def export(self, principal: Principal, record: RunRecord, events: Sequence[Event]) -> ExportedRun:
        """Return a run with everything that is needed to show it elsewhere."""
        found = await self.background.runner.runs.requests(record.run_id)
        try:
            test = write_test(events)
        except SetupError:
            test = ""
        return ExportedRun(
            1,
            schemas.to_run_detail(record, events, principal, show_errors=True),
            tuple([msgspec.Raw(schemas.encode_logged_event(event, principal)) for event in events]),
            tuple([view_compared(found, events, key) for key in found]),
            msgspec.to_builtins(self.describe_team()),
            test,
        )

    async def _get_test(self, principal: Principal, request: Request) -> Response:
        _, events = await self._load(principal, path_id(request, "run"))
        try:
            return json_response(RecordedTest(write_test(events)))
        except SetupError as error:
            raise ServingError(409, "not_repeatable", str(error)) from None

    async def _fork(self, principal: Principal, request: Request) -> Response:
        parse = partial(msgspec.json.decode, type=ForkBody)
        body = await self.guard.parse_body(request, parse, default=ForkBody())
        _, events = await self._load(principal, path_id(request, "run"))
        source = run_started_event(events)
        args = self._fork_args(body)
        id = body.run_id or new_id()
        try:
            forked = fork_events(events, principal.to_store_id(id), at=body.at, edit=body.edit)
        except RunError as error:
            raise ServingError(422, "invalid", str(error)) from None
        assert isinstance(forked[0], RunStarted)
        forked[0] = replace(forked[0], owner=principal.name)
        repository = self.background.runner._repository
        run_id = await repository.create_fork(forked, source)
        if body.start:
            await self.background.resume(run_id, None, **args)
        root = str(request.scope["path"]).rpartition("/runs/")[0]
        return await self.run_response(principal, id, 201, {"Location": f"{root}/runs/{id}"})

    def _fork_args(self, body: ForkBody) -> ResumeArgs[Any]:
        """Return the options of a fork; callers of these endpoints may set any. Raises ServingError."""
        args = ResumeArgs[Any](accept_changes=True)
        try:
            if body.model is not None:
                args["model"] = body.model
            if body.agent_options:
                args["agent_options"] = {name: _to_options(each) for name, each in body.agent_options.items()}
            for options in given_options(args, self.background.runner.team).values():
                if options.model is not None:
                    resolve_model(options.model)
        except (SetupError, msgspec.ValidationError) as error:
            raise ServingError(422, "invalid", str(error)) from None
        if body.message is not None:
            args["message"] = body.message
        return args

    async def _replay(self, principal: Principal, request: Request) -> Response:
        _, events = await self._load(principal, path_id(request, "run"))
        try:
            await self.background.runner.runs.replay(events)
        except ReplayMismatchError as error:
            numbers = {event.key: number for number, event in enumerate(events, 1)}
            return json_response(
                ReplayVerdict(False, error.key, numbers.get(error.key) or numbers.get(error.skipped), str(error))
            )
        except BatonError as error:
            is_recorded = isinstance(events[-1], RunFailed) and events[-1].error_type == type(error).__name__
            return json_response(ReplayVerdict(is_recorded, message=f"{type(error).__name__}: {error}"))
        return json_response(ReplayVerdict(True))

    async def _compare(self, principal: Principal, request: Request) -> Response:
        _, ours = await self._load(principal, id := path_id(request, "run"))
        _, theirs = await self._load(principal, other := path_id(request, "run", "other"))
        return json_response(compare_runs((id, ours), (other, theirs)))

    async def _load(self, principal: Principal, id: str) -> tuple[RunRecord, list[Event]]:
        record = await self.require_run(principal, id)
        return record, await self.background.runner.runs.events(record.run_id)


class _EventType(msgspec.Struct):
    type: str


def _type_of(line: bytes) -> str:
    return msgspec.json.decode(line, type=_EventType).type


def _without_request(line: bytes) -> bytes:
    """Return an event with only the policy and the size of its recorded request."""
    if b'"request":{' not in line:
        return bytes(line)
    event = msgspec.json.decode(line)
    if isinstance(request := event.get("request"), dict):
        event["request"] = {name: request[name] for name in ("policy", "entries") if name in request}
    return msgspec.json.encode(event)


def _to_options(body: schemas.AgentOptionsBody) -> AgentOptions:
    settings = body.model_settings
    return AgentOptions(
        model=body.model,
        model_settings=None if settings is None else msgspec.convert(settings, ModelSettings),
        instructions=body.instructions,
        tools=body.tools,
        max_turns=body.max_turns,
    )
