"""What becomes of a call to a team that is an MCP server: a run, from its start or its open questions to its end."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import mcp_types as types
from mcp.server import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ...context import to_json_value
from ...errors import AnswerError, NotEncodableError, RunNotFoundError, quote_names
from ...events import AgentStarted, ControlTransferred, Delta, Event, ProgressDelta, ToolReturned
from ...log import Log
from ...runner import Interrupt, Runner, RunResult, RunStream
from ...runner.courses import run_started_event
from ...runner.result import to_interrupt
from ..http import Principal
from ..http.guard import principal_of
from .convert import blocks_of
from .questions import answer_in, elicitation_of, open_questions


class ToolCallHandler:
    """Carries out calls. `runners` are by the names of their tools."""

    def __init__(self, runners: Mapping[str, Runner[Any, Any]], *, answer_tool: str) -> None:
        self._runners = runners
        self._answer_tool = answer_tool

    async def made(
        self, ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        """What one call comes to: the run's result, or what must be known before it can go on.

        Raises MCPError if there is no such tool.
        """
        given, caller = params.arguments or {}, principal_of(ctx.request)
        if params.request_state is not None:
            return await self._answered(ctx, params)
        if params.name == self._answer_tool:
            run_id = str(given.get("run_id", ""))
            runner = await self._runner_with(run_id, caller)
            live = runner.stream_resume(run_id, given.get("answers"))
        elif params.name in self._runners:
            request = given.get("request")
            if not isinstance(request, str) or not request.strip():
                return error_result('give what should be done as text: {"request": "…"}')
            runner = self._runners[params.name]
            live = runner.stream(request, owner=caller.name)
        else:
            names = [*self._runners, self._answer_tool]
            raise MCPError(INVALID_PARAMS, f"there is no tool `{params.name}`; the tools are: {quote_names(names)}")
        return await self._outcome(ctx, runner, await _driven(ctx, live))

    async def _answered(
        self, ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Go on with a run that the client has got answers for."""
        run_id = str(params.request_state)
        runner = await self._runner_with(run_id, principal_of(ctx.request))
        interrupts = {asked.id: asked for asked in await _interrupts(runner, run_id)}
        answers: dict[str, Any] = {}
        for id, response in (params.input_responses or {}).items():
            if id in interrupts and isinstance(response, types.ElicitResult):
                answer = answer_in(response, interrupts[id])
                if answer is not None:
                    answers[id] = answer[0]
        if not answers:
            return self._told(run_id, interrupts.values())
        return await self._outcome(ctx, runner, await _driven(ctx, runner.stream_resume(run_id, answers)))

    async def _outcome(
        self, ctx: ServerRequestContext[Any], runner: Runner[Any, Any], result: RunResult[Any]
    ) -> types.CallToolResult | types.InputRequiredResult:
        while result.status == "suspended":
            if not _can_elicit(ctx):
                return self._told(result.run_id, result.interrupts)
            if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                requests: types.InputRequests = {asked.id: elicitation_of(asked) for asked in result.interrupts}
                return types.InputRequiredResult(input_requests=requests, request_state=result.run_id)
            answers: dict[str, Any] = {}
            for asked in result.interrupts:
                form = elicitation_of(asked).params
                assert isinstance(form, types.ElicitRequestFormParams)
                given = await ctx.session.elicit_form(form.message, form.requested_schema, ctx.request_id)
                answer = answer_in(given, asked)
                if answer is not None:
                    answers[asked.id] = answer[0]
            if not answers:
                return self._told(result.run_id, result.interrupts)
            result = await _driven(ctx, runner.stream_resume(result.run_id, answers))
        if result.status != "completed":
            return error_result(f"the run `{result.run_id}` was {result.status}")
        return _completed(result.output)

    def _told(self, run_id: str, interrupts: Iterable[Interrupt]) -> types.CallToolResult:
        return error_result(open_questions(run_id, tuple(interrupts), answer_tool=self._answer_tool))

    async def _runner_with(self, run_id: str, caller: Principal) -> Runner[Any, Any]:
        """The runner that has this run of the caller's. Raises AnswerError if none has."""
        for runner in self._runners.values():
            try:
                events = await runner.events(run_id)
            except RunNotFoundError:
                continue
            started = run_started_event(events)
            if started.root_agent == runner.team.root and caller.sees(started.owner):
                return runner
        raise AnswerError(f"no run `{run_id}` waits here for answers")


async def _driven(ctx: ServerRequestContext[Any], live: RunStream[Any]) -> RunResult[Any]:
    """Drive the run and report what it is doing. A client that goes away cancels it."""
    steps = 0
    async with live:
        async for event in live:
            text = _progress_in(event)
            if text:
                steps += 1
                await ctx.session.report_progress(steps, None, text)
    return live.result


def _progress_in(event: Event | Delta) -> str:
    match event:
        case AgentStarted():
            return f"{event.origin.agent} has the floor"
        case ControlTransferred():
            return f"{event.source} hands over to {event.target}"
        case ToolReturned():
            return f"{event.origin.agent} has used {event.tool_name}"
        case ProgressDelta():
            return event.text
        case _:
            return ""


async def _interrupts(runner: Runner[Any, Any], run_id: str) -> list[Interrupt]:
    return [to_interrupt(asked) for asked in Log(await runner.events(run_id)).open_questions().values()]


def _can_elicit(ctx: ServerRequestContext[Any]) -> bool:
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.elicitation is None:
        return False
    asked = capabilities.elicitation
    # A client that names no mode means forms, which were all there was at first.
    has_forms = asked.form is not None or asked.url is None
    return has_forms and (ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or ctx.session.can_send_request)


def _completed(output: Any) -> types.CallToolResult:
    if output is None or isinstance(output, str):
        return types.CallToolResult(content=[types.TextContent(text=output or "")])
    try:
        plain = to_json_value("the output", output)
    except NotEncodableError:
        return types.CallToolResult(content=[types.TextContent(text=str(output))])
    text = json.dumps(plain, ensure_ascii=False)
    if not isinstance(plain, dict):
        plain = {"result": plain}
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=plain)


def error_result(text: str) -> types.CallToolResult:
    """A result that tells the client's model what went wrong."""
    return types.CallToolResult(content=[*blocks_of(text)], is_error=True)
