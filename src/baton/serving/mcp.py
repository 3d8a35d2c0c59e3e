"""Serve a team as an MCP server: each tool starts a run, and interrupts become elicitations."""

import json
from collections.abc import Iterable, Mapping, Sequence
from logging import getLogger
from typing import TYPE_CHECKING, Any, cast

from ..agents import BaseAgent
from ..context.values import to_json_value
from ..errors import AnswerError, NotEncodableError, RunNotFoundError, SetupError, quote_names
from ..events import AgentStarted, ControlTransferred, Delta, Event, ProgressDelta, ToolReturned
from ..handoffs import tool_name_for
from ..log import Log
from ..mcp.convert import to_blocks
from ..models import Model
from ..runner import BackgroundRunner, Interrupt, Runner, RunResult, RunStream
from ..runner.backends import run_started_event
from ..runner.result import to_interrupt
from ..stores import Store
from ..version import __version__
from .http import AuthLike, Principal
from .http.app import AppTarget, ContextFactory, cors_middleware, make_context
from .http.guard import AuthMiddleware, RequestGuard, get_principal

try:
    import mcp_types as types
    from mcp.server import Server, ServerRequestContext
    from mcp.shared.exceptions import MCPError
    from mcp_types import INVALID_PARAMS
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS
except ImportError as error:
    raise SetupError("MCP needs its library: pip install 'baton-adk[mcp]'") from error

if TYPE_CHECKING:
    from starlette.applications import Starlette

_PRIMITIVE = ("string", "number", "integer", "boolean")
_APPROVAL_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean", "description": "Whether the call is approved."},
        "reason": {"type": "string", "description": "The reason for a rejection."},
    },
    "required": ["approved"],
}
_FREE_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"answer": {"type": "string", "description": "The answer; JSON unless it is plain text."}},
    "required": ["answer"],
}


def _interrupt_text(interrupt: Interrupt) -> str:
    payload, agent = interrupt.payload, interrupt.agent
    if isinstance(payload, dict):
        fields = cast("dict[str, Any]", payload)
        if fields.get("kind") == "approval":
            what = fields.get("tool") or f"the transfer to {fields.get('handoff')}"
            arguments = _to_json(fields.get("arguments", fields.get("input")))
            return f"{agent} requests approval for {what} with {arguments}."
        if isinstance(fields.get("message"), str):
            return f"{agent} asks: {fields['message']}"
    return f"{agent} asks: {payload}" if isinstance(payload, str) else f"{agent} needs an answer: {_to_json(payload)}"


def _to_elicitation(interrupt: Interrupt) -> types.ElicitRequest:
    params = types.ElicitRequestFormParams(message=_interrupt_text(interrupt), requested_schema=_answer_form(interrupt))
    return types.ElicitRequest(params=params)


def _parse_answer(result: types.ElicitResult, interrupt: Interrupt) -> tuple[Any] | None:
    """Return the answer in a 1-tuple, or None if the user gave none."""
    form = _answer_form(interrupt)
    if result.action != "accept" or result.content is None:
        return ({"approved": False},) if form is _APPROVAL_FORM and result.action == "decline" else None
    content: dict[str, Any] = {key: value for key, value in result.content.items() if value is not None}
    if form is not _FREE_FORM:
        return (content,)
    answer = content.get("answer", "")
    schema = interrupt.schema
    if schema is None or schema.get("type") == "string":
        return (answer,)
    try:
        return (json.loads(str(answer)),)
    except ValueError:
        return (answer,)


def _describe_interrupts(run_id: str, interrupts: tuple[Interrupt, ...], *, answer_tool: str) -> str:
    """Describe the open interrupts of a run for a client that does not support elicitation."""
    lines = [f"The run `{run_id}` is suspended and needs answers."]
    for interrupt in interrupts:
        expected = f" The answer must match this JSON schema: {_to_json(interrupt.schema)}" if interrupt.schema else ""
        if _answer_form(interrupt) is _APPROVAL_FORM:
            expected = ' Answer true, false, or {"approved": false, "reason": "…"}.'
        lines.append(f"- `{interrupt.id}`: {_interrupt_text(interrupt)}{expected}")
    example = {"run_id": run_id, "answers": {interrupt.id: "…" for interrupt in interrupts}}
    lines.append(f"To resume it, call the tool `{answer_tool}` with {_to_json(example)}")
    return "\n".join(lines)


def _answer_form(interrupt: Interrupt) -> dict[str, Any]:
    # A form has primitive fields only; other answers are requested as text.
    if _is_approval(interrupt):
        return _APPROVAL_FORM
    schema = interrupt.schema or {}
    properties = schema.get("properties")
    if schema.get("type") == "object" and isinstance(properties, dict):
        fields = cast("dict[str, Any]", properties).values()
        if all(isinstance(field, dict) and cast("Any", field).get("type") in _PRIMITIVE for field in fields):
            return {key: schema[key] for key in ("type", "properties", "required") if key in schema}
    return _FREE_FORM


def _is_approval(interrupt: Interrupt) -> bool:
    payload = interrupt.payload
    fields = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
    return interrupt.tool_call is not None and fields.get("kind") == "approval"


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


class ToolCallHandler:
    """Executes tool calls.

    Args:
        runners: Runners by tool name.
        answer_tool: The name of the tool that takes answers.
        context_factory: Creates the run's context object from the owner's name.
    """

    def __init__(
        self, runners: Mapping[str, Runner[Any, Any]], *, answer_tool: str, context_factory: ContextFactory | None
    ) -> None:
        self._runners = runners
        self._answer_tool = answer_tool
        self._context_factory = context_factory

    async def call(
        self, ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Execute a call and return the run's result, or the input that it needs.

        Args:
            ctx: The context of the request.
            params: The tool and its arguments.

        Raises:
            MCPError: There is no such tool.
        """
        arguments, principal = params.arguments or {}, get_principal(ctx.request)
        context = make_context(self._context_factory, principal.name)
        if params.request_state is not None:
            return await self._resume(ctx, params)
        if params.name == self._answer_tool:
            run_id = str(arguments.get("run_id", ""))
            runner = await self._find_runner(run_id, principal)
            stream = runner.stream_resume(run_id, arguments.get("answers"), context=context)
        elif params.name in self._runners:
            request = arguments.get("request")
            if not isinstance(request, str) or not request.strip():
                return _error_result('pass the request as text: {"request": "…"}')
            runner = self._runners[params.name]
            stream = runner.stream(request, owner=principal.name, context=context)
        else:
            names = [*self._runners, self._answer_tool]
            raise MCPError(INVALID_PARAMS, f"there is no tool `{params.name}`; the tools are: {quote_names(names)}")
        return await self._outcome(ctx, runner, await _drive(ctx, stream))

    async def _resume(
        self, ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        run_id = str(params.request_state)
        principal = get_principal(ctx.request)
        runner = await self._find_runner(run_id, principal)
        interrupts = {interrupt.id: interrupt for interrupt in await _open_interrupts(runner, run_id)}
        answers: dict[str, Any] = {}
        for id, response in (params.input_responses or {}).items():
            if id in interrupts and isinstance(response, types.ElicitResult):
                answer = _parse_answer(response, interrupts[id])
                if answer is not None:
                    answers[id] = answer[0]
        if not answers:
            return self._needs_answers(run_id, interrupts.values())
        stream = runner.stream_resume(run_id, answers, context=make_context(self._context_factory, principal.name))
        return await self._outcome(ctx, runner, await _drive(ctx, stream))

    async def _outcome(
        self, ctx: ServerRequestContext[Any], runner: Runner[Any, Any], result: RunResult[Any]
    ) -> types.CallToolResult | types.InputRequiredResult:
        while result.status == "suspended":
            if not _can_elicit(ctx):
                return self._needs_answers(result.run_id, result.interrupts)
            if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                requests: types.InputRequests = {
                    interrupt.id: _to_elicitation(interrupt) for interrupt in result.interrupts
                }
                return types.InputRequiredResult(input_requests=requests, request_state=result.run_id)
            answers: dict[str, Any] = {}
            for interrupt in result.interrupts:
                form = _to_elicitation(interrupt).params
                assert isinstance(form, types.ElicitRequestFormParams)
                response = await ctx.session.elicit_form(form.message, form.requested_schema, ctx.request_id)
                answer = _parse_answer(response, interrupt)
                if answer is not None:
                    answers[interrupt.id] = answer[0]
            if not answers:
                return self._needs_answers(result.run_id, result.interrupts)
            context = make_context(self._context_factory, get_principal(ctx.request).name)
            result = await _drive(ctx, runner.stream_resume(result.run_id, answers, context=context))
        if result.status != "completed":
            return _error_result(f"the run `{result.run_id}` was {result.status}")
        return _completed(result.output)

    def _needs_answers(self, run_id: str, interrupts: Iterable[Interrupt]) -> types.CallToolResult:
        return _error_result(_describe_interrupts(run_id, tuple(interrupts), answer_tool=self._answer_tool))

    async def _find_runner(self, run_id: str, principal: Principal) -> Runner[Any, Any]:
        for runner in self._runners.values():
            try:
                events = await runner.events(run_id)
            except RunNotFoundError:
                continue
            started = run_started_event(events)
            if started.root_agent == runner.team.root and principal.sees(started.owner):
                return runner
        raise AnswerError(f"there is no suspended run `{run_id}`")


async def _drive(ctx: ServerRequestContext[Any], stream: RunStream[Any]) -> RunResult[Any]:
    """Drive a run and report its progress. A client that disconnects cancels it."""
    steps = 0
    async with stream:
        async for event in stream:
            text = _progress_text(event)
            if text:
                steps += 1
                await ctx.session.report_progress(steps, None, text)
    return stream.result


def _progress_text(event: Event | Delta) -> str:
    match event:
        case AgentStarted():
            return f"{event.origin.agent} is active"
        case ControlTransferred():
            return f"{event.source} transfers to {event.target}"
        case ToolReturned():
            return f"{event.origin.agent} called {event.tool_name}"
        case ProgressDelta():
            return event.text
        case _:
            return ""


async def _open_interrupts(runner: Runner[Any, Any], run_id: str) -> list[Interrupt]:
    return [to_interrupt(raised) for raised in Log(await runner.events(run_id)).open_interrupts().values()]


def _can_elicit(ctx: ServerRequestContext[Any]) -> bool:
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.elicitation is None:
        return False
    elicitation = capabilities.elicitation
    # A client that names no mode supports forms, the only mode of earlier versions.
    has_forms = elicitation.form is not None or elicitation.url is None
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


def _error_result(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[*to_blocks(text)], is_error=True)


_logger = getLogger("baton.mcp")

ANSWER_TOOL = "answer_run"

_REQUEST_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "request": {"type": "string", "description": "The request, with all the information that it needs."}
    },
    "required": ["request"],
    "additionalProperties": False,
}
_ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "run_id": {"type": "string", "description": "The suspended run."},
        "answers": {"description": "Answers by interrupt id; or the answer, if only one interrupt is open."},
    },
    "required": ["run_id", "answers"],
    "additionalProperties": False,
}


def mcp_server(
    target: AppTarget,
    /,
    *,
    show_errors: bool = False,
    context_factory: ContextFactory | None = None,
    store: Store | str | None = None,
    model: Model | str | None = None,
    tool_per_agent: bool = False,
) -> "Server[Any]":
    """Return a team as a server of the `mcp` library, for any transport.

    Interrupts become elicitations. If the client does not support them, the result lists the open interrupts, and
    another tool takes the answers.

    Args:
        target: The agent, runner or background runner to serve.
        show_errors: Show clients the message of the exception that failed a run.
        context_factory: Creates the run's context object from the owner's name.
        store: The store for an agent's runs.
        model: The default model for an agent's runs.
        tool_per_agent: Offer every agent of the team as a tool, not only the root.

    Raises:
        SetupError: Two tools would have the same name, or an option does not apply to a runner.
    """
    runners = _make_runners(target, tool_per_agent=tool_per_agent, model=model, store=store)
    calls = ToolCallHandler(runners, answer_tool=ANSWER_TOOL, context_factory=context_factory)
    tools = [_tool(name, runner) for name, runner in runners.items()]
    tools.append(
        types.Tool(
            name=ANSWER_TOOL,
            description="Answer the open interrupts of a run of one of the other tools, and resume that run.",
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
            return await calls.call(ctx, params)
        except AnswerError as error:
            return _error_result(str(error))
        except MCPError:
            raise
        except Exception as error:
            _logger.exception("a call of `%s` failed", params.name)
            details = f"{type(error).__name__}: {error}" if show_errors else type(error).__name__
            return _error_result(f"the run failed: {details}")

    root = next(iter(runners.values())).team.root
    return Server(f"baton {root}", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)


def mcp_app(
    target: AppTarget,
    /,
    *,
    auth: AuthLike | None = None,
    allow_anonymous: bool = False,
    cors_origins: Sequence[str] = (),
    max_body: int = 4 << 20,
    show_errors: bool = False,
    context_factory: ContextFactory | None = None,
    store: Store | str | None = None,
    model: Model | str | None = None,
    tool_per_agent: bool = False,
    host: str = "127.0.0.1",
    path: str = "/mcp",
) -> "Starlette":
    """Return an ASGI app that serves a team over MCP's streamable HTTP transport.

    Args:
        target: The agent, runner or background runner to serve.
        auth: Who may call: a token, tokens by principal name, a function that verifies tokens, or auth schemes.
        allow_anonymous: Without `auth`, accept requests from other machines too.
        cors_origins: Origins whose pages may call the app.
        max_body: The largest accepted body in bytes.
        show_errors: Show clients the message of the exception that failed a run.
        context_factory: Creates the run's context object from the owner's name.
        store: The store for an agent's runs.
        model: The default model for an agent's runs.
        tool_per_agent: Offer every agent of the team as a tool, not only the root.
        host: The address that the app will be served on; on loopback, the SDK also checks the Host header.
        path: The path of the endpoint.

    Raises:
        SetupError: An argument is invalid.
    """
    guard = RequestGuard(auth, allow_anonymous=allow_anonymous, max_body=max_body)
    server = mcp_server(
        target,
        show_errors=show_errors,
        context_factory=context_factory,
        store=store,
        model=model,
        tool_per_agent=tool_per_agent,
    )
    app = server.streamable_http_app(host=host, streamable_http_path=path)
    app.add_middleware(AuthMiddleware, guard=guard)
    # The last middleware is the outermost: preflight requests carry no credentials.
    for middleware in cors_middleware(cors_origins):
        app.add_middleware(middleware.cls, *middleware.args, **middleware.kwargs)
    return app


def _make_runners(
    target: AppTarget, *, tool_per_agent: bool, model: Model | str | None, store: Store | str | None
) -> dict[str, Runner[Any, Any]]:
    """Return a runner for each tool, by the name of the tool."""
    if not isinstance(target, BaseAgent):
        if tool_per_agent or model is not None or store is not None:
            raise SetupError("tool_per_agent, model and store do not apply to a Runner; pass the agent instead")
        runner = target.runner if isinstance(target, BackgroundRunner) else target
        return {tool_name_for(runner.team.root): runner}
    root: Runner[Any, Any] = Runner(target, model=model, store=store)
    agents: Sequence[Any] = [seat.agent for seat in root.team.members.values()] if tool_per_agent else [target]
    runners: dict[str, Runner[Any, Any]] = {}
    for agent in agents:
        name = tool_name_for(agent.name)
        if name in runners or name == ANSWER_TOOL:
            raise SetupError(f"two tools would be named `{name}`; rename the agent `{agent.name}`")
        runners[name] = root if agent is target else Runner(agent, model=model, store=store)
    return runners


def _tool(name: str, runner: Runner[Any, Any]) -> types.Tool:
    agent = runner.team.members[runner.team.root].agent
    description = agent.description or f"Ask {agent.name}."
    return types.Tool(name=name, title=agent.name, description=description, input_schema=_REQUEST_SCHEMA)
