"""A server's tool as one of ours.

What a server asks while it carries out a call: something of a person, of a model, or which folders it may use.

A user is sent to a page, so that a server can be used in their name.
"""

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count
from time import time
from typing import Any, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError
from mcp_types import INVALID_PARAMS, URL_ELICITATION_REQUIRED

from mcp import ClientSession

from ..agents import AgentContext
from ..agents.compiled import CompiledAgent
from ..context import RunContext
from ..errors import ToolError, ToolsUnavailableError
from ..events import InterruptRaised, StepCompleted
from ..messages import AssistantMessage, Message, ToolSpec, UserMessage, text_of
from ..models import ModelRequest, ModelSettings, collect_response
from ..tools import ToolResult
from ..tools.base import parse_json_object
from .auth import AuthorizationCode
from .connection import MCPConnection
from .convert import effect_of_hints, is_repeatable, optional_in, outcome_of_result, part_of
from .in_flight import refusal
from .oauth import AuthorizationCodeFlow, ConcurrentAuth
from .transports import AuthorizationRequiredError, MCPTransport, StreamableHTTPTransport

ELICITATION = "elicitation"
"""The kind of question that a server's is."""


class ServerRequestHandler:
    """Answers for one call, in the run that the call is made in."""

    def __init__(
        self, ctx: RunContext[Any], server: str, tool: str, *, roots: tuple[types.Root, ...], sampling: bool
    ) -> None:
        self._ctx = ctx
        self._server = server
        self._tool = tool
        self._roots = roots
        self._sampling = sampling

    async def answer(self, request: types.InputRequest) -> types.InputResponse | types.ErrorData:
        """The answer; a person's is waited for by suspending the run."""
        match request:
            case types.ElicitRequest(params=params):
                return await self._elicited(params)
            case types.CreateMessageRequest(params=params):
                return await self._sampled(params)
            case types.ListRootsRequest():
                return types.ListRootsResult(roots=list(self._roots))

    async def _elicited(self, params: types.ElicitRequestParams) -> types.ElicitResult:
        question: dict[str, Any] = {
            "kind": ELICITATION,
            "server": self._server,
            "tool": self._tool,
            "message": params.message,
        }
        if isinstance(params, types.ElicitRequestURLParams):
            agrees = await self._ctx.interrupt({**question, "url": params.url}, schema={"type": "boolean"})
            return types.ElicitResult(action="accept" if agrees else "decline")
        # Whoever does not want to say answers False.
        wanted: dict[str, Any] = {"anyOf": [dict(params.requested_schema), {"const": False}]}
        answer = await self._ctx.interrupt(question, schema=wanted)
        if answer is False:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={**_defaults(params.requested_schema), **answer})

    async def _sampled(self, params: types.CreateMessageRequestParams) -> types.CreateMessageResult | types.ErrorData:
        if not self._sampling:
            return refusal(f"{self._server} may not ask the model: MCPToolset(…, sampling=True) would allow it")
        if params.tools:
            return refusal("sampling with tools is not supported here")
        manner = _manner_of(self._ctx)
        if manner is None:
            return refusal("there is no model to ask")
        said = await self._ctx.step("sampling", partial(self._ask_model, params, manner))
        return types.CreateMessageResult.model_validate(said)

    async def _ask_model(self, params: types.CreateMessageRequestParams, manner: CompiledAgent) -> dict[str, Any]:
        ctx, settings = self._ctx, ModelSettings(max_tokens=params.max_tokens, temperature=params.temperature)
        stop = tuple(params.stop_sequences) if params.stop_sequences else None
        settings = manner.settings.merge(settings).merge(ModelSettings(stop_sequences=stop))
        request = ModelRequest(
            [_message_of(message) for message in params.messages],
            params.system_prompt or "",
            settings=settings,
            agent=ctx.agent,
        )
        ctx._run.meter.start_model_call(ctx._origin)
        response = await collect_response(manner.model.respond(request), manner.model.name)
        if response.usage is not None:
            ctx._run.meter.add_usage(response.usage, ctx._origin)
        text = text_of(response.message.content) if response.message is not None else ""
        result = types.CreateMessageResult(
            role="assistant",
            content=types.TextContent(text=text),
            model=response.model or manner.model.name,
            stop_reason="maxTokens" if response.stop_reason == "length" else "endTurn",
        )
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)


def _defaults(form: Mapping[str, Any]) -> dict[str, Any]:
    """What a form says by itself in the fields that a person leaves as they are."""
    fields: dict[str, dict[str, Any]] = form.get("properties", {})
    return {name: field["default"] for name, field in fields.items() if "default" in field}


def _manner_of(ctx: RunContext[Any]) -> CompiledAgent | None:
    caller = ctx._caller
    return caller._options.compiled_agents.get(ctx.agent) if isinstance(caller, AgentContext) else None


def _message_of(message: types.SamplingMessage) -> Message:
    blocks = [
        block
        for block in message.content_as_list
        if isinstance(block, types.TextContent | types.ImageContent | types.AudioContent)
    ]
    content = tuple([part_of(block) for block in blocks])
    return UserMessage(content) if message.role == "user" else AssistantMessage(content)


AUTHORIZATION = "authorization"
"""The kind of question that asks a user to visit a page."""

_ANSWER: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "description": "The address that the user was sent back to, with code and state in it."},
        {"type": "object", "required": ["state"], "description": "Its fields: code, state, and iss if it is there."},
        {"type": "boolean", "description": "False: the user gives no leave. True: it was given elsewhere."},
    ]
}

_MOST_VISITS = 3


class UserAuthorization:
    """The visits that one thing in a run waits for: a server's tools, or a call."""

    def __init__(self, way: MCPTransport, ctx: RunContext[Any] | None) -> None:
        """Without a run, only a function of the application can send a user anywhere."""
        self._way = way
        self._made = 0
        # A place of its own: whatever else is asked here keeps its number, whether or not this has to be asked.
        self._ctx = None if ctx is None else RunContext(ctx._run, ctx._origin, f"{ctx._scope}/visit", ctx.tool_call)

    async def made(self, needed: AuthorizationRequiredError) -> None:
        """Return when the user has been there. Raises Suspend until then, ToolsUnavailableError if they do not want to."""
        way = self._way
        assert isinstance(way, StreamableHTTPTransport)
        flow = way.flow
        assert isinstance(flow, ConcurrentAuth)
        assert isinstance(flow.provider, AuthorizationCodeFlow)
        visit = way.auth.on_authorize if isinstance(way.auth, AuthorizationCode) else None
        if visit is not None:
            self._made += 1
            if self._made > _MOST_VISITS:
                raise ToolsUnavailableError(
                    way.label, f"leave was given {_MOST_VISITS} times, and it still is not enough"
                )
            if not await flow.provider.came_back(await visit(needed.url)):
                raise ToolsUnavailableError(way.label, "what `visit` gave is no answer to the page that it was given")
            return
        if self._ctx is None:
            raise ToolsUnavailableError(way.label, str(needed)) from needed
        while True:
            answer = await self._asked(self._ctx, needed)
            if answer is False:
                raise ToolsUnavailableError(way.label, "the user gave no leave to use it")
            # An answer to a page from before a restart, or to one that has been answered, is of no use any more.
            if answer is True or await flow.provider.came_back(answer):
                return

    async def _asked(self, ctx: RunContext[Any], needed: AuthorizationRequiredError) -> Any:
        question = {
            "kind": AUTHORIZATION,
            "server": needed.label,
            "message": f"Give leave to use {needed.label}, then answer with the address that you are sent back to.",
            "url": needed.url,
        }
        return await ctx.interrupt(question, schema=_ANSWER)


_MOST_ROUNDS = 50
_VISIT = "baton.visit"
"""How the keys of requests begin that the server did not make as such: it cannot be told that they were declined."""
_SHORTEST_WAIT, _LONGEST_WAIT = 0.05, 1.0


class MCPTool:
    """Calls a tool of a server. What the server asks meanwhile is asked in the run, and kept in its log."""

    def __init__(
        self,
        connection: MCPConnection,
        tool: types.Tool,
        spec: ToolSpec,
        *,
        way: MCPTransport,
        roots: tuple[types.Root, ...],
        sampling: bool,
        timeout: float | None,
    ) -> None:
        self._connection = connection
        self._tool = tool
        self.spec = spec
        self.effect = effect_of_hints(tool)
        self._way = way
        self._server = way.label
        self._roots = roots
        self._sampling = sampling
        self._timeout = timeout
        # A strict copy of the schema has null for what the server wants left out.
        self._may_be_null = optional_in(tool.input_schema) if spec.strict else frozenset[str]()

    def check_arguments(self, arguments: str) -> dict[str, Any] | ToolResult:
        """The arguments, or an outcome that says why they are none. Whether they fit is for the server to say."""
        given = parse_json_object(arguments, self.spec.name)
        if isinstance(given, ToolResult):
            return given
        return {key: value for key, value in given.items() if value is not None or key not in self._may_be_null}

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Call it, and once more with the answers each time the server needs some to go on."""
        given = self.check_arguments(arguments)
        if isinstance(given, ToolResult):
            return given
        asking = ServerRequestHandler(ctx, self._server, self._tool.name, roots=self._roots, sampling=self._sampling)
        required: types.InputRequiredResult | None = None
        responses: types.InputResponses = {}
        log = ctx._run.log
        for round in range(1, _MOST_ROUNDS + 1):
            key = f"{ctx._scope}/mcp{round}"
            # What the server asked is on record, with the state it wants back: it is not called again just to ask.
            stepped = log.find(key, StepCompleted)
            if stepped is None:
                result = await self._gone_on_with(ctx, given, asking, required, responses)
                if isinstance(result, types.CallToolResult):
                    return outcome_of_result(result)
                asked = result.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"meta"})
                stepped = StepCompleted(key, ctx._origin, time(), "mcp", asked)
                log.write(stepped)
                await log.settle()
            required = types.InputRequiredResult.model_validate(stepped.result)
            responses = await self._answers(asking, required)
        raise ToolError(f"`{self.spec.name}` still asks for more after {_MOST_ROUNDS} rounds", tool=self.spec.name)

    async def _gone_on_with(
        self,
        ctx: RunContext[Any],
        given: dict[str, Any],
        asking: ServerRequestHandler,
        required: types.InputRequiredResult | None,
        responses: types.InputResponses,
    ) -> types.CallToolResult | types.InputRequiredResult:
        """The next round. A server that was started anew may not know its own state: then it begins again."""
        if required is None:
            self._check_question_is_alive(ctx)
            return await self._sent(ctx, given, asking)
        try:
            return await self._sent(ctx, given, asking, responses=responses, state=required.request_state)
        except ToolError as error:
            cause = error.__cause__
            if required.request_state is None or not isinstance(cause, MCPError) or cause.code != INVALID_PARAMS:
                raise
        again = await self._sent(ctx, given, asking)
        if isinstance(again, types.CallToolResult) or again.input_requests != required.input_requests:
            return again
        return await self._sent(ctx, given, asking, responses=responses, state=again.request_state)

    def _check_question_is_alive(self, ctx: RunContext[Any]) -> None:
        """Raises ToolError if the call has asked before, is gone since, and must not simply be made again.

        Before 2026-07-28 a question is part of the connection that it was asked over, and ends with it.
        """
        if is_repeatable(self._tool) or self._connection.is_waiting(ctx.idempotency_key):
            return
        if ELICITATION in _kinds_asked_in(ctx):
            raise ToolError(
                f"it is unknown whether `{self._tool.name}` was carried out: it asked something, and {self._server} "
                "was gone when the answer came. It is not called again by itself, because its server does not say that "
                "this would do no harm; find out first what happened",
                tool=self._tool.name,
            )

    async def _answers(self, asking: ServerRequestHandler, required: types.InputRequiredResult) -> types.InputResponses:
        answers: types.InputResponses = {}
        for name, request in (required.input_requests or {}).items():
            answer = await asking.answer(request)
            if isinstance(answer, types.ErrorData):
                raise ToolError(f"`{self.spec.name}` cannot go on: {answer.message}", tool=self.spec.name)
            if name.startswith(_VISIT) and isinstance(answer, types.ElicitResult) and answer.action != "accept":
                raise ToolError(f"`{self.spec.name}` cannot go on: the user declined", tool=self.spec.name)
            answers[name] = answer
        return answers

    async def _sent(
        self,
        ctx: RunContext[Any],
        given: dict[str, Any],
        asking: ServerRequestHandler,
        *,
        responses: types.InputResponses | None = None,
        state: str | None = None,
    ) -> types.CallToolResult | types.InputRequiredResult:
        """What the server gives, or asks. If it only asks to come back later, that is done."""
        wait, is_over, visits = _SHORTEST_WAIT, False, UserAuthorization(self._way, ctx)

        async def report(progress: float, total: float | None, message: str | None) -> None:
            if not is_over:
                await ctx.progress(message or "", done=progress, total=total)

        async def send(session: ClientSession) -> types.CallToolResult | types.InputRequiredResult:
            return await session.call_tool(
                self._tool.name,
                given,
                read_timeout_seconds=self._timeout,
                progress_callback=report,
                input_responses=responses,
                request_state=state,
                allow_input_required=True,
            )

        try:
            while True:
                try:
                    result = await self._connection.call(
                        self._tool,
                        send,
                        may_repeat=is_repeatable(self._tool),
                        answering=asking,
                        place=ctx.idempotency_key,
                    )
                except AuthorizationRequiredError as needed:
                    await visits.made(needed)
                    continue
                except ToolError as error:
                    pages = _pages_in(error.__cause__)
                    if pages is None:
                        raise
                    return pages
                if isinstance(result, types.CallToolResult) or result.input_requests:
                    return result
                responses, state = None, result.request_state
                await asyncio.sleep(wait)
                wait = min(wait * 2, _LONGEST_WAIT)
        finally:
            is_over = True

    def __repr__(self) -> str:
        return f"MCPTool({self.spec.name!r}, {self._server})"


def _kinds_asked_in(ctx: RunContext[Any]) -> Iterator[Any]:
    """The kinds of the questions that this call has asked so far."""
    for ordinal in count(1):
        asked = ctx._run.log.find(f"{ctx._scope}/ask{ordinal}", InterruptRaised)
        if asked is None:
            return
        payload: Any = asked.payload
        yield cast("dict[str, Any]", payload).get("kind") if isinstance(payload, dict) else None


def _pages_in(error: BaseException | None) -> types.InputRequiredResult | None:
    """The pages that the user must visit first, if this is how a server of 2025-11-25 says so."""
    if not isinstance(error, MCPError) or error.code != URL_ELICITATION_REQUIRED:
        return None
    wanted = UrlElicitationRequiredError.from_error(error.error).elicitations
    requests: types.InputRequests = {f"{_VISIT}{n}": types.ElicitRequest(params=each) for n, each in enumerate(wanted)}
    return types.InputRequiredResult(input_requests=requests) if requests else None
