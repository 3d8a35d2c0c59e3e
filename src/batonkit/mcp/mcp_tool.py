"""Tools of MCP servers, with the server's requests and user authorization during a call."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from itertools import count
from time import time
from typing import Any, TypeAlias, TypeVar, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError
from mcp_types import INVALID_PARAMS, URL_ELICITATION_REQUIRED

from mcp import ClientSession

from ..agents import AgentContext
from ..agents.compiled import CompiledAgent
from ..context import RunContext
from ..errors import SetupError, ToolError, ToolsUnavailableError
from ..log import InterruptRaised, StepCompleted, keys
from ..log.events import payload_fields
from ..messages import AssistantMessage, Message, ToolSpec, UserMessage, answer_of
from ..models import ModelRequest, ModelSettings, collect_response
from ..models.prices import add_cost
from ..tools import ToolResult
from ..tools.base_tool import parse_json_object
from .auth import AuthorizationCode
from .connection import MCPConnection, unknown_outcome
from .convert import check_result, declared_effect, is_repeatable, optional_properties, to_part, to_tool_result
from .mcp_session import refusal
from .oauth import AuthorizationCodeFlow, ConcurrentAuth
from .transports import AuthorizationRequiredError, MCPTransport, StreamableHTTPTransport

T = TypeVar("T")

ELICITATION = "elicitation"
"""The `kind` of an interrupt that passes on a server's elicitation."""


_MAX_ROUNDS = 50
_URL_REQUEST = "baton.visit"
"""Prefix for requests made from URL elicitation errors; the server cannot be notified of a decline."""
_MIN_POLL_DELAY = 0.05
_MAX_POLL_DELAY = 1.0

_CallResult: TypeAlias = types.CallToolResult | types.InputRequiredResult
_SampledContent: TypeAlias = types.TextContent | types.ImageContent | types.AudioContent


class MCPCall:
    """One call of a tool; it answers the server's requests in the run of the call."""

    def __init__(self, ctx: RunContext[Any], tool: "MCPTool", arguments: dict[str, Any]) -> None:
        self._ctx = ctx
        self._tool = tool.tool
        self._name = tool.spec.name
        self._connection = tool.connection
        self._settings = tool.connection.settings
        self._server = self._settings.transport.label
        self._arguments = arguments

    async def result(self) -> ToolResult:
        """Return the result; the call is sent again with answers when the server asks for input."""
        required: types.InputRequiredResult | None = None
        responses: types.InputResponses = {}
        ctx = self._ctx
        log = ctx._run.log
        for round in range(1, _MAX_ROUNDS + 1):
            key = keys.inside(ctx._scope, f"mcp{round}")
            # The request and the server's state are recorded, so that it is not called again to ask.
            step = log.find(key, StepCompleted)
            if step is None:
                result = await self._next_round(required, responses)
                if isinstance(result, types.CallToolResult):
                    check_result(self._tool, result)
                    return to_tool_result(result)
                request = result.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"meta"})
                step = StepCompleted(key, ctx._origin, time(), "mcp", request)
                log.write(step)
                await log.settle()
            required = types.InputRequiredResult.model_validate(step.result)
            responses = await self._collect_answers(required)
        raise ToolError(f"`{self._name}` still asks for input after {_MAX_ROUNDS} rounds", tool=self._name)

    async def answer(self, request: types.InputRequest) -> types.InputResponse | types.ErrorData:
        """Answer a request; one to a user suspends the run."""
        match request:
            case types.ElicitRequest(params=params):
                return await self._elicit(params)
            case types.CreateMessageRequest(params=params):
                return await self._sample(params)
            case types.ListRootsRequest():
                return self._settings.list_roots()

    async def _elicit(self, params: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        question = {"kind": ELICITATION, "server": self._server, "tool": self._tool.name, "message": params.message}
        if isinstance(params, types.ElicitRequestURLParams):
            agrees = await self._ctx.interrupt({**question, "url": params.url}, schema={"type": "boolean"})
            return types.ElicitResult(action="accept" if agrees else "decline")
        # An answer is an object with the fields of the form; False declines.
        form = {**params.requested_schema, "type": "object"}
        try:
            answer = await self._ctx.interrupt(question, schema={"anyOf": [form, {"const": False}]})
        except SetupError as error:
            return refusal(f"the question was not asked: {error}")
        if answer is False:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={**_defaults(form), **answer})

    async def _sample(self, params: types.CreateMessageRequestParams) -> types.CreateMessageResult | types.ErrorData:
        if not self._settings.allow_sampling:
            return refusal(f"{self._server} may not use sampling; MCPToolset(…, allow_sampling=True) allows it")
        if params.tools:
            return refusal("sampling with tools is not supported")
        agent = _compiled_agent(self._ctx)
        if agent is None:
            return refusal("the agent has no model")
        response = await self._ctx.step("sampling", partial(self._call_model, params, agent))
        return types.CreateMessageResult.model_validate(response)

    async def _call_model(self, params: types.CreateMessageRequestParams, agent: CompiledAgent) -> dict[str, Any]:
        ctx = self._ctx
        # The server does not know the model, and MCP leaves it to the client whether to follow these settings.
        wanted = ModelSettings(
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            stop_sequences=tuple(params.stop_sequences) if params.stop_sequences else None,
            ignore_unsupported=True,
        )
        request = ModelRequest(
            [_to_message(message) for message in params.messages],
            params.system_prompt or "",
            settings=agent.settings.merge(wanted),
            agent=ctx.agent,
        )
        ctx._run.meter.start_model_call(ctx._origin)
        response = await collect_response(agent.model.respond(request), agent.model.name)
        if response.usage is not None:
            prices = cast("AgentContext[Any]", ctx._caller)._options.prices
            ctx._run.meter.add_usage(add_cost(prices, response.usage, agent.model.name, response.model), ctx._origin)
        text = answer_of(response.message.content) if response.message is not None else ""
        result = types.CreateMessageResult(
            role="assistant",
            content=types.TextContent(text=text),
            model=response.model or agent.model.name,
            stop_reason="maxTokens" if response.stop_reason == "length" else "endTurn",
        )
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)

    async def _next_round(
        self, required: types.InputRequiredResult | None, responses: types.InputResponses
    ) -> _CallResult:
        """Run the next round; start over if a restarted server does not know its state."""
        if required is None:
            self._check_can_continue()
            return await self._send()
        try:
            return await self._send(responses, required.request_state)
        except ToolError as error:
            cause = error.__cause__
            if required.request_state is None or not isinstance(cause, MCPError) or cause.code != INVALID_PARAMS:
                raise
        restarted = await self._send()
        if isinstance(restarted, types.CallToolResult) or restarted.input_requests != required.input_requests:
            return restarted
        return await self._send(responses, restarted.request_state)

    def _check_can_continue(self) -> None:
        """Raise ToolError if the call lost its connection after asking and must not be repeated.

        Before protocol 2026-07-28 a server's request ends with the connection it was sent over.
        """
        if is_repeatable(self._tool) or self._connection.has_suspended_call(self._ctx.idempotency_key):
            return
        if ELICITATION in _interrupt_kinds(self._ctx):
            reason = f"it asked for input, and the connection to {self._server} was lost before the answer"
            raise unknown_outcome(self._tool, reason)

    async def _collect_answers(self, required: types.InputRequiredResult) -> types.InputResponses:
        answers: types.InputResponses = {}
        for name, request in (required.input_requests or {}).items():
            answer = await self.answer(request)
            if isinstance(answer, types.ErrorData):
                raise ToolError(f"`{self._name}` cannot continue: {answer.message}", tool=self._name)
            if name.startswith(_URL_REQUEST) and isinstance(answer, types.ElicitResult) and answer.action != "accept":
                raise ToolError(f"`{self._name}` cannot continue: the user declined", tool=self._name)
            answers[name] = answer
        return answers

    async def _send(self, responses: types.InputResponses | None = None, state: str | None = None) -> _CallResult:
        """Send the call and return its result or the server's requests; poll while it defers."""
        delay = _MIN_POLL_DELAY
        is_done = False
        authorization = UserAuthorization(self._settings.transport, self._ctx)

        async def report(progress: float, total: float | None, message: str | None) -> None:
            if not is_done:
                await self._ctx.progress(message or "", done=progress, total=total)

        async def send(session: ClientSession) -> _CallResult:
            return await session.call_tool(
                self._tool.name,
                self._arguments,
                read_timeout_seconds=self._settings.timeout,
                progress_callback=report,
                input_responses=responses,
                request_state=state,
                allow_input_required=True,
            )

        async def call() -> _CallResult:
            return await self._connection.call(self._tool, send, answerer=self.answer, key=self._ctx.idempotency_key)

        try:
            while True:
                try:
                    result = await authorization.authorized(call)
                except ToolError as error:
                    requests = _url_requests(error.__cause__)
                    if requests is None:
                        raise
                    return requests
                if isinstance(result, types.CallToolResult) or result.input_requests:
                    return result
                responses = None
                state = result.request_state
                await asyncio.sleep(delay)
                delay = min(delay * 2, _MAX_POLL_DELAY)
        finally:
            is_done = True


def _defaults(form: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = form.get("properties", {})
    return {name: field["default"] for name, field in fields.items() if isinstance(field, dict) and "default" in field}


def _compiled_agent(ctx: RunContext[Any]) -> CompiledAgent | None:
    caller = ctx._caller
    return caller._options.compiled_agents.get(ctx.agent) if isinstance(caller, AgentContext) else None


def _to_message(message: types.SamplingMessage) -> Message:
    content = tuple([to_part(block) for block in message.content_as_list if isinstance(block, _SampledContent)])
    return UserMessage(content) if message.role == "user" else AssistantMessage(content)


AUTHORIZATION = "authorization"
"""The `kind` of an interrupt that asks a user to authorize the client."""

_ANSWER: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "description": "The URL that the user was redirected to, with code and state."},
        {"type": "object", "required": ["state"], "description": "Its parameters: code, state, and iss if present."},
        {"type": "boolean", "description": "False: the user declined. True: authorization was completed elsewhere."},
    ]
}

_MAX_AUTHORIZATIONS = 3


class UserAuthorization:
    """User authorization for one operation in a run: listing tools, or a call."""

    def __init__(self, transport: MCPTransport, ctx: RunContext[Any] | None) -> None:
        self._transport = transport
        self._attempts = 0
        # A scope of its own: other interrupts here keep their numbers whether or not this one is raised.
        self._ctx: RunContext[Any] | None = None
        if ctx is not None:
            self._ctx = RunContext(ctx._run, ctx._origin, keys.inside(ctx._scope, "visit"), ctx.tool_call)

    async def authorized(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Return the result of an operation; repeat it once the user has authorized the client.

        Raises:
            SuspendRun: The user must visit the page first.
            AuthorizationRequiredError: A user must authorize the client, and there is no context to ask in.
            ToolsUnavailableError: The user declined, or authorization failed.
        """
        while True:
            try:
                return await operation()
            except AuthorizationRequiredError as required:
                await self._obtain(required)

    async def _obtain(self, required: AuthorizationRequiredError) -> None:
        transport = self._transport
        assert isinstance(transport, StreamableHTTPTransport)
        assert isinstance(transport.auth, AuthorizationCode)
        flow = transport.flow
        on_authorize = transport.auth.on_authorize
        assert isinstance(flow, ConcurrentAuth)
        assert isinstance(flow.provider, AuthorizationCodeFlow)
        if on_authorize is not None:
            self._attempts += 1
            if self._attempts > _MAX_AUTHORIZATIONS:
                reason = f"still not authorized after {_MAX_AUTHORIZATIONS} authorizations"
                raise ToolsUnavailableError(transport.label, reason)
            if not await flow.provider.accept_redirect(await on_authorize(required.url)):
                reason = "`on_authorize` returned a redirect that does not belong to its URL"
                raise ToolsUnavailableError(transport.label, reason)
            return
        if self._ctx is None:
            raise required
        question = {
            "kind": AUTHORIZATION,
            "server": required.label,
            "message": f"Authorize {required.label} at the URL, then answer with the URL that you are redirected to.",
            "url": required.url,
        }
        while True:
            answer = await self._ctx.interrupt(question, schema=_ANSWER)
            if answer is False:
                raise ToolsUnavailableError(transport.label, "the user declined to authorize it")
            # The answer may belong to a page from before a restart, or to one that was answered already.
            if answer is True or await flow.provider.accept_redirect(answer):
                return


class MCPTool:
    """A tool of an MCP server.

    The server's requests during a call become interrupts of the run and are recorded in its log.
    """

    def __init__(self, connection: MCPConnection, tool: types.Tool, spec: ToolSpec) -> None:
        self.connection = connection
        self.tool = tool
        self.spec = spec
        self.effect = declared_effect(tool)
        # In a strict copy of the schema, null stands for a missing property.
        self._nullable = optional_properties(tool.input_schema) if spec.strict else frozenset[str]()

    def check_arguments(self, arguments: str) -> dict[str, Any] | ToolResult:
        """Parse the arguments, or return an error for the model. The server validates them."""
        given = parse_json_object(arguments, self.spec.name)
        if isinstance(given, ToolResult):
            return given
        return {key: value for key, value in given.items() if value is not None or key not in self._nullable}

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Call the tool, again with answers whenever the server asks for input."""
        given = self.check_arguments(arguments)
        if isinstance(given, ToolResult):
            return given
        return await MCPCall(ctx, self, given).result()

    def __repr__(self) -> str:
        return f"MCPTool({self.spec.name!r}, {self.connection.settings.transport.label})"


def _interrupt_kinds(ctx: RunContext[Any]) -> Iterator[Any]:
    """Yield the kinds of the interrupts that this call has raised so far."""
    for number in count(1):
        request = ctx._run.log.find(keys.interrupt(ctx._scope, number), InterruptRaised)
        if request is None:
            return
        yield payload_fields(request.payload).get("kind")


def _url_requests(error: BaseException | None) -> types.InputRequiredResult | None:
    """Convert the error with which servers of 2025-11-25 ask a user to visit pages."""
    if not isinstance(error, MCPError) or error.code != URL_ELICITATION_REQUIRED:
        return None
    pages = UrlElicitationRequiredError.from_error(error.error).elicitations
    requests: types.InputRequests = {f"{_URL_REQUEST}{n}": types.ElicitRequest(params=p) for n, p in enumerate(pages)}
    return types.InputRequiredResult(input_requests=requests) if requests else None
