"""Serve a team as an MCP server: each tool starts a run, and interrupts become elicitations."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from .. import errors
from .._checks import check_arguments
from ..agents import BaseAgent
from ..context.values import to_json_value
from ..handoffs import tool_name_for
from ..log import AgentStarted, ControlTransferred, Delta, Event, ProgressDelta, ToolReturned
from ..log.log import Log
from ..models import Model
from ..runs import BackgroundRunner, ContextFactory, Interrupt, Runner, RunResult, RunStream
from ..runs.opening import run_started_event
from ..runs.result import to_interrupt
from ..stores import Store
from ..version import __version__
from .http.application import SHUTDOWN, AppTarget, Shutdown, cors_middleware, with_context_factory
from .http.auth import AuthLike, Principal
from .http.guard import AuthMiddleware, RequestGuard, get_principal
from .http.questions import is_approval, question_text, to_json

try:
    import mcp_types as types
    from mcp.server import Server, ServerRequestContext
    from mcp.server.transport_security import TransportSecuritySettings
    from mcp.shared.exceptions import MCPError
    from mcp_types import INVALID_PARAMS
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS
except ImportError as error:
    raise errors.MissingExtraError("batonkit.serve.mcp_app", "mcp", error) from error

if TYPE_CHECKING:
    from starlette.applications import Starlette

_logger = getLogger("baton.mcp")
_PRIMITIVE = ("string", "number", "integer", "boolean")
ANSWER_TOOL = "answer_run"
_CLOSED = {"additionalProperties": False}


def _object_schema(required: Sequence[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required]}


_APPROVAL_FORM = _object_schema(
    ["approved"],
    approved={"type": "boolean", "description": "Whether the call is approved."},
    reason={"type": "string", "description": "The reason for a rejection."},
)
_FREE_FORM = _object_schema(
    ["answer"], answer={"type": "string", "description": "The answer; JSON unless it is plain text."}
)
_REQUEST_SCHEMA = _object_schema(
    ["request"], request={"type": "string", "description": "The request, with all the information that it needs."}
)
_ANSWER_SCHEMA = _object_schema(
    ["run_id", "answers"],
    run_id={"type": "string", "description": "The suspended run."},
    answers={"description": "Answers by interrupt id; or the answer, if only one interrupt is open."},
)


def _parse_answers(responses: Mapping[str, Any], interrupts: Iterable[Interrupt]) -> dict[str, Any]:
    """Return the answers by interrupt id; an interrupt that the user did not answer has none."""
    answers: dict[str, Any] = {}
    for interrupt in interrupts:
        response = responses.get(interrupt.id)
        form = _answer_form(interrupt)
        if not isinstance(response, types.ElicitResult):
            continue
        if response.action == "accept" and response.content is not None:
            content = {key: value for key, value in response.content.items() if value is not None}
            answers[interrupt.id] = content if form is not _FREE_FORM else _parse_free_answer(content, interrupt)
        elif response.action == "decline" and form is _APPROVAL_FORM:
            answers[interrupt.id] = {"approved": False}
    return answers


def _parse_free_answer(content: Mapping[str, Any], interrupt: Interrupt) -> Any:
    answer = content.get("answer", "")
    if interrupt.schema is None or interrupt.schema.get("type") == "string":
        return answer
    try:
        return json.loads(str(answer))
    except ValueError:
        return answer


def _needs_answers(run_id: str, interrupts: Sequence[Interrupt]) -> types.CallToolResult:
    """Describe the open interrupts of a run for a client that does not support elicitation."""
    lines = [f"The run `{run_id}` is suspended and needs answers."]
    for interrupt in interrupts:
        expected = f" The answer must match this JSON schema: {to_json(interrupt.schema)}" if interrupt.schema else ""
        if _answer_form(interrupt) is _APPROVAL_FORM:
            expected = ' Answer true, false, or {"approved": false, "reason": "…"}.'
        lines.append(f"- `{interrupt.id}`: {question_text(interrupt)}{expected}")
    example = {"run_id": run_id, "answers": {interrupt.id: "…" for interrupt in interrupts}}
    lines.append(f"To resume it, call the tool `{ANSWER_TOOL}` with {to_json(example)}")
    return _error_result("\n".join(lines))


def _answer_form(interrupt: Interrupt) -> dict[str, Any]:
    # A form has primitive fields only; other answers are requested as text.
    if is_approval(interrupt):
        return _APPROVAL_FORM
    schema = interrupt.schema or {}
    properties = schema.get("properties")
    if schema.get("type") == "object" and isinstance(properties, dict):
        fields = cast("dict[str, Any]", properties).values()
        if all(isinstance(field, dict) and cast("Any", field).get("type") in _PRIMITIVE for field in fields):
            return {key: schema[key] for key in ("type", "properties", "required") if key in schema}
    return _FREE_FORM


_CallResult: TypeAlias = types.CallToolResult | types.InputRequiredResult


class ToolCallHandler:
    """Executes tool calls."""

    def __init__(self, runners: Mapping[str, Runner[Any, Any]], *, show_errors: bool) -> None:
        self.runners = runners
        self._show_errors = show_errors
        self._streams: set[RunStream[Any]] = set()
        self._draining: asyncio.Task[None] | None = None

    async def drain(self, seconds: float = 10.0) -> None:
        """Start no more runs, let turns in flight finish, and cancel the runs, which can be resumed."""
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain(seconds))
        await asyncio.shield(self._draining)

    async def _drain(self, seconds: float) -> None:
        streams = [*self._streams]
        for stream in streams:
            await stream.cancel("after_turn")
        if streams:
            waiting = [asyncio.ensure_future(stream.wait()) for stream in streams]
            await asyncio.wait(waiting, timeout=seconds)
            await self.release_all()
            await asyncio.wait(waiting)

    async def release_all(self) -> None:
        """Cancel all runs now; they can be resumed."""
        await asyncio.gather(*[stream.cancel() for stream in self._streams])

    async def call(self, ctx: ServerRequestContext[Any], params: types.CallToolRequestParams) -> _CallResult:
        """Execute a call and return the run's result, or the input that it needs.

        Raises:
            MCPError: There is no such tool.
        """
        try:
            return await self._call(ctx, params)
        except (errors.AnswerError, errors.ShuttingDownError, errors.TaskFailedError) as error:
            return _error_result(str(error))
        except MCPError:
            raise
        except Exception as error:
            _logger.exception("a call of `%s` failed", params.name)
            details = f"{type(error).__name__}: {error}" if self._show_errors else type(error).__name__
            return _error_result(f"the run failed: {details}")

    async def _call(self, ctx: ServerRequestContext[Any], params: types.CallToolRequestParams) -> _CallResult:
        if params.request_state is not None:
            return await self._answer_elicitations(ctx, params.request_state, params.input_responses or {})
        arguments = params.arguments or {}
        if params.name == ANSWER_TOOL:
            return await self._answer_run(ctx, str(arguments.get("run_id", "")), arguments.get("answers"))
        if params.name in self.runners:
            return await self._start(ctx, self.runners[params.name], arguments.get("request"))
        names = errors.quote_names([*self.runners, ANSWER_TOOL])
        raise MCPError(INVALID_PARAMS, f"there is no tool `{params.name}`; the tools are: {names}")

    async def _start(self, ctx: ServerRequestContext[Any], runner: Runner[Any, Any], request: Any) -> _CallResult:
        if not isinstance(request, str) or not request.strip():
            return _error_result('pass the request as text: {"request": "…"}')
        return await self._finish(ctx, runner, runner.stream(request, owner=get_principal(ctx.request).name))

    async def _answer_run(self, ctx: ServerRequestContext[Any], run_id: str, answers: Any) -> _CallResult:
        runner = await self._find_runner(run_id, get_principal(ctx.request))
        return await self._finish(ctx, runner, runner.stream_resume(run_id, answers))

    async def _answer_elicitations(
        self, ctx: ServerRequestContext[Any], run_id: str, responses: Mapping[str, Any]
    ) -> _CallResult:
        runner = await self._find_runner(run_id, get_principal(ctx.request))
        raised = Log(await runner.runs.events(run_id)).open_interrupts().values()
        interrupts = [to_interrupt(each) for each in raised]
        answers = _parse_answers(responses, interrupts)
        if not answers:
            return _needs_answers(run_id, interrupts)
        return await self._finish(ctx, runner, runner.stream_resume(run_id, answers))

    async def _find_runner(self, run_id: str, principal: Principal) -> Runner[Any, Any]:
        for runner in self.runners.values():
            try:
                events = await runner.runs.events(run_id)
            except errors.RunNotFoundError:
                continue
            started = run_started_event(events)
            if started.root_agent == runner.team.root and principal.sees(started.owner):
                return runner
        raise errors.AnswerError(f"there is no suspended run `{run_id}`")

    async def _finish(
        self, ctx: ServerRequestContext[Any], runner: Runner[Any, Any], stream: RunStream[Any]
    ) -> _CallResult:
        """Drive a run, and ask the user for the input that it needs if the client can."""
        result = await self._drive(ctx, stream)
        while result.status == "suspended":
            if not _can_elicit(ctx):
                return _needs_answers(result.run_id, result.interrupts)
            forms = {
                interrupt.id: types.ElicitRequestFormParams(
                    message=question_text(interrupt), requested_schema=_answer_form(interrupt)
                )
                for interrupt in result.interrupts
            }
            if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                requests: types.InputRequests = {id: types.ElicitRequest(params=form) for id, form in forms.items()}
                return types.InputRequiredResult(input_requests=requests, request_state=result.run_id)
            responses = {
                id: await ctx.session.elicit_form(form.message, form.requested_schema, ctx.request_id)
                for id, form in forms.items()
            }
            answers = _parse_answers(responses, result.interrupts)
            if not answers:
                return _needs_answers(result.run_id, result.interrupts)
            result = await self._drive(ctx, runner.stream_resume(result.run_id, answers))
        if result.status != "completed":
            return _error_result(f"the run `{result.run_id}` was {result.status}")
        return _completed(result.output)

    async def _drive(self, ctx: ServerRequestContext[Any], stream: RunStream[Any]) -> RunResult[Any]:
        """Drive a run and report its progress. A client that disconnects cancels it."""
        if self._draining is not None:
            raise errors.ShuttingDownError("the server is shutting down; call the tool again")
        steps = 0
        self._streams.add(stream)
        try:
            async with stream:
                async for event in stream:
                    text = _progress_text(event)
                    if text:
                        steps += 1
                        await ctx.session.report_progress(steps, None, text)
        finally:
            self._streams.discard(stream)
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
        return _text_result(output or "")
    try:
        plain: Any = to_json_value("the output", output)
    except errors.NotEncodableError:
        return _text_result(str(output))
    structured = cast("dict[str, Any]", plain) if isinstance(plain, dict) else {"result": plain}
    return _text_result(json.dumps(plain, ensure_ascii=False), structured_content=structured)


def _text_result(text: str, **fields: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], **fields)


def _error_result(text: str) -> types.CallToolResult:
    return _text_result(text, is_error=True)


@check_arguments
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
        context_factory: Creates the context of a run from its record; by default the runner's own.
        store: The store for an agent's runs.
        model: The default model for an agent's runs.
        tool_per_agent: Offer every agent of the team as a tool, not only the root.

    Raises:
        SetupError: Two tools would have the same name, or an option does not apply to a runner.
    """
    runners = _make_runners(target, context_factory, tool_per_agent=tool_per_agent, model=model, store=store)
    return _make_server(ToolCallHandler(runners, show_errors=show_errors))


def _make_server(calls: ToolCallHandler) -> "Server[Any]":
    runners = calls.runners
    answer = "Answer the open interrupts of a run of one of the other tools, and resume that run."
    tools = [_tool(name, runner) for name, runner in runners.items()]
    tools.append(types.Tool(name=ANSWER_TOOL, description=answer, input_schema=_ANSWER_SCHEMA | _CLOSED))

    async def list_tools(
        ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    root = next(iter(runners.values())).team.root
    return Server(f"baton {root}", version=__version__, on_list_tools=list_tools, on_call_tool=calls.call)


@check_arguments
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
    path: str = "/mcp",
) -> "Starlette":
    """Return an ASGI app that serves a team over MCP's streamable HTTP transport.

    Args:
        target: The agent, runner or background runner to serve.
        auth: The accepted credentials: a token, tokens by principal name, a function that verifies tokens, or schemes.
        allow_anonymous: Without `auth`, accept requests from other machines too.
        cors_origins: Origins whose pages may call the app.
        max_body: The largest accepted body in bytes.
        show_errors: Show clients the message of the exception that failed a run.
        context_factory: Creates the context of a run from its record; by default the runner's own.
        store: The store for an agent's runs.
        model: The default model for an agent's runs.
        tool_per_agent: Offer every agent of the team as a tool, not only the root.
        path: The path of the endpoint.

    Raises:
        SetupError: An argument is invalid.
    """
    guard = RequestGuard(auth, allow_anonymous=allow_anonymous, max_body=max_body, cors_origins=cors_origins)
    runners = _make_runners(target, context_factory, tool_per_agent=tool_per_agent, model=model, store=store)
    calls = ToolCallHandler(runners, show_errors=show_errors)
    # The guard checks Host and Origin, as in all apps; the SDK's own check does not know `cors_origins`.
    unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = _make_server(calls).streamable_http_app(transport_security=unchecked, streamable_http_path=path)
    app.router.lifespan_context = partial(_lifespan, calls, app.router.lifespan_context)
    app.add_middleware(AuthMiddleware, guard=guard)
    # The last middleware is the outermost: preflight requests carry no credentials.
    for middleware in cors_middleware(cors_origins):
        app.add_middleware(middleware.cls, *middleware.args, **middleware.kwargs)
    return app


@asynccontextmanager
async def _lifespan(calls: ToolCallHandler, sessions: Any, app: Any) -> AsyncGenerator[dict[str, Any]]:
    async with sessions(app):
        yield {SHUTDOWN: Shutdown(calls)}
        # Sessions cancel their calls when they end.
        await calls.drain()


def _make_runners(
    target: AppTarget,
    context_factory: ContextFactory | None,
    *,
    tool_per_agent: bool,
    model: Model | str | None,
    store: Store | str | None,
) -> dict[str, Runner[Any, Any]]:
    """Return a runner for each tool, by the name of the tool."""
    if not isinstance(target, BaseAgent):
        if tool_per_agent or model is not None or store is not None:
            raise errors.SetupError("tool_per_agent, model and store do not apply to a Runner; pass the agent instead")
        target = with_context_factory(target, "mcp_app", context_factory)
        runner = target.runner if isinstance(target, BackgroundRunner) else target
        return {tool_name_for(runner.team.root): runner}
    root: Runner[Any, Any] = Runner(target, model=model, store=store, context_factory=context_factory)
    agents: Sequence[Any] = [member.agent for member in root.team.members.values()] if tool_per_agent else [target]
    runners: dict[str, Runner[Any, Any]] = {}
    for agent in agents:
        name = tool_name_for(agent.name)
        if name in runners or name == ANSWER_TOOL:
            raise errors.SetupError(f"two tools would be named `{name}`; rename the agent `{agent.name}`")
        options: dict[str, Any] = {"model": model, "store": store, "context_factory": context_factory}
        runners[name] = root if agent is target else Runner(agent, **options)
    return runners


def _tool(name: str, runner: Runner[Any, Any]) -> types.Tool:
    agent = runner.team.members[runner.team.root].agent
    description = agent.description or f"Ask {agent.name}."
    return types.Tool(name=name, title=agent.name, description=description, input_schema=_REQUEST_SCHEMA | _CLOSED)
