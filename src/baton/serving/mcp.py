"""A team as an MCP server: each tool of it is a run.

Open questions of a run, as an MCP client puts them to a person.

What becomes of a call to a team that is an MCP server: a run, from its start or its open questions to its end.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from logging import getLogger
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types
from mcp.server import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ..agents import BaseAgent
from ..context.values import to_json_value
from ..errors import AnswerError, NotEncodableError, RunNotFoundError, SetupError, quote_names
from ..events import AgentStarted, ControlTransferred, Delta, Event, ProgressDelta, ToolReturned
from ..handoffs import tool_name_for
from ..log import Log
from ..mcp.convert import to_blocks
from ..models import Model
from ..runner import Interrupt, Runner, RunResult, RunStream
from ..runner.backends import run_started_event
from ..runner.result import to_interrupt
from ..stores import Store
from ..version import __version__
from .http import Principal
from .http.guard import principal_of

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from .http import AuthLike

_PRIMITIVE = ("string", "number", "integer", "boolean")
_APPROVAL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean", "description": "Whether it may be done."},
        "reason": {"type": "string", "description": "Why not, if it may not."},
    },
    "required": ["approved"],
}
_ANYTHING: dict[str, Any] = {
    "type": "object",
    "properties": {"answer": {"type": "string", "description": "The answer; JSON if it is not just text."}},
    "required": ["answer"],
}


def question_of(interrupt: Interrupt) -> str:
    """The question in words."""
    payload, agent = interrupt.payload, interrupt.agent
    if isinstance(payload, dict):
        asked = cast("dict[str, Any]", payload)
        if asked.get("kind") == "approval":
            what = asked.get("tool") or f"the transfer to {asked.get('handoff')}"
            return f"{agent} wants to use {what} with {_shown(asked.get('arguments', asked.get('input')))}. May it?"
        if isinstance(asked.get("message"), str):
            return f"{agent} asks: {asked['message']}"
    return f"{agent} asks: {payload}" if isinstance(payload, str) else f"{agent} waits for an answer: {_shown(payload)}"


def elicitation_of(interrupt: Interrupt) -> types.ElicitRequest:
    """The question as a form."""
    params = types.ElicitRequestFormParams(message=question_of(interrupt), requested_schema=_form_of(interrupt))
    return types.ElicitRequest(params=params)


def answer_in(result: types.ElicitResult, interrupt: Interrupt) -> tuple[Any] | None:
    """The answer that a filled-in form gives; None if the person gave none."""
    form = _form_of(interrupt)
    if result.action != "accept" or result.content is None:
        return ({"approved": False},) if form is _APPROVAL and result.action == "decline" else None
    content: dict[str, Any] = {key: value for key, value in result.content.items() if value is not None}
    if form is not _ANYTHING:
        return (content,)
    answer = content.get("answer", "")
    schema = interrupt.schema
    if schema is None or schema.get("type") == "string":
        return (answer,)
    try:
        return (json.loads(str(answer)),)
    except ValueError:
        return (answer,)


def open_questions(run_id: str, interrupts: tuple[Interrupt, ...], *, answer_tool: str) -> str:
    """What is open in a run and how to answer it, for a client that cannot ask its user."""
    lines = [f"The run `{run_id}` is not finished: it waits for answers."]
    for interrupt in interrupts:
        fits = f" The answer must fit this JSON schema: {_shown(interrupt.schema)}" if interrupt.schema else ""
        if _form_of(interrupt) is _APPROVAL:
            fits = ' Answer true, false, or {"approved": false, "reason": "…"}.'
        lines.append(f"- `{interrupt.id}`: {question_of(interrupt)}{fits}")
    example = {"run_id": run_id, "answers": {interrupt.id: "…" for interrupt in interrupts}}
    lines.append(f"To go on, call the tool `{answer_tool}` with {_shown(example)}")
    return "\n".join(lines)


def _form_of(interrupt: Interrupt) -> dict[str, Any]:
    """A form can ask for nothing but plain fields; whatever does not fit into one is asked for as text."""
    if _is_approval(interrupt):
        return _APPROVAL
    schema = interrupt.schema or {}
    properties = schema.get("properties")
    if schema.get("type") == "object" and isinstance(properties, dict):
        fields = cast("dict[str, Any]", properties).values()
        if all(isinstance(field, dict) and cast("Any", field).get("type") in _PRIMITIVE for field in fields):
            return {key: schema[key] for key in ("type", "properties", "required") if key in schema}
    return _ANYTHING


def _is_approval(interrupt: Interrupt) -> bool:
    payload = interrupt.payload
    asked = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
    return interrupt.tool_call is not None and asked.get("kind") == "approval"


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


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
    return [to_interrupt(asked) for asked in Log(await runner.events(run_id)).open_interrupts().values()]


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
    return types.CallToolResult(content=[*to_blocks(text)], is_error=True)


try:
    import mcp_types as types
    from mcp.server import Server, ServerRequestContext
    from mcp.shared.exceptions import MCPError

except ImportError as error:
    raise SetupError("MCP needs its library: pip install 'baton-adk[mcp]'") from error


logger = getLogger("baton.mcp")

ANSWER_TOOL = "answer_run"

_REQUEST_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"request": {"type": "string", "description": "What should be done, with all that is to be known."}},
    "required": ["request"],
    "additionalProperties": False,
}
_ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "run_id": {"type": "string", "description": "The run that waits."},
        "answers": {"description": "The answers, by the id of the question; or the answer, if only one is open."},
    },
    "required": ["run_id", "answers"],
    "additionalProperties": False,
}


def mcp_server(
    target: "BaseAgent[Any, Any] | Runner[Any, Any]",
    *,
    tool_per_agent: bool = False,
    model: Model | str | None = None,
    store: "Store | str | None" = None,
) -> "Server[Any]":
    """A team as a server of the `mcp` library: its root is a tool, or with `each` every agent is one.

    Runs that ask something ask the client's user; if the client cannot do that, the result says what is open, and
    another tool takes the answers.
    """
    runners = _runners(target, each=tool_per_agent, model=model, store=store)
    calls = ToolCallHandler(runners, answer_tool=ANSWER_TOOL)
    tools = [_tool(name, runner) for name, runner in runners.items()]
    tools.append(
        types.Tool(
            name=ANSWER_TOOL,
            description="Answer what a run of one of the other tools waits for, and go on with that run.",
            input_schema=_ANSWER_SCHEMA,
        )
    )

    async def list_tools(
        ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(
        ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        try:
            return await calls.made(ctx, params)
        except AnswerError as error:
            return error_result(str(error))
        except MCPError:
            raise
        except Exception as error:
            # What it says may be nobody's business but that of whoever runs the team.
            logger.exception("a call of `%s` failed", params.name)
            return error_result(f"the run failed: {type(error).__name__}")

    root = next(iter(runners.values())).team.root
    return Server(f"baton {root}", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)


def mcp_app(
    target: "BaseAgent[Any, Any] | Runner[Any, Any]",
    *,
    tool_per_agent: bool = False,
    model: Model | str | None = None,
    store: "Store | str | None" = None,
    auth: "AuthLike | None" = None,
    host: str = "127.0.0.1",
    path: str = "/mcp",
) -> "Starlette":
    """The same as an ASGI app that speaks streamable HTTP at `path`; `host` is where it will be served.

    `auth` says who may call, as for `baton.server.api_app`; runs then belong to whoever asked for them.
    """
    server = mcp_server(target, tool_per_agent=tool_per_agent, model=model, store=store)
    app = server.streamable_http_app(host=host, streamable_http_path=path)
    if auth is not None:
        from .http.guard import AuthMiddleware, RequestGuard

        app.add_middleware(AuthMiddleware, door=RequestGuard(auth))
    return app


def _runners(
    team: Any, *, each: bool, model: Model | str | None, store: "Store | str | None"
) -> dict[str, Runner[Any, Any]]:
    """A runner for each tool, by the tool's name."""
    if isinstance(team, Runner):
        if each or model is not None or store is not None:
            raise SetupError("a Runner has its root, its model and its store; give the agent to say these here")
        runner = cast("Runner[Any, Any]", team)
        return {tool_name_for(runner.team.root): runner}
    root = Runner(team, model=model, store=store)
    agents: Sequence[Any] = [seat.agent for seat in root.team.members.values()] if each else [team]
    runners: dict[str, Runner[Any, Any]] = {}
    for agent in agents:
        name = tool_name_for(agent.name)
        if name in runners or name == ANSWER_TOOL:
            raise SetupError(f"two tools would be called `{name}`; give `{agent.name}` another name")
        runners[name] = root if agent is team else Runner(agent, model=model, store=store)
    return runners


def _tool(name: str, runner: Runner[Any, Any]) -> types.Tool:
    agent = runner.team.members[runner.team.root].agent
    described = agent.description or f"Ask {agent.name}."
    return types.Tool(name=name, title=agent.name, description=described, input_schema=_REQUEST_SCHEMA)
