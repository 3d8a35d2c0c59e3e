"""A server's tool as one of ours."""

import asyncio
from collections.abc import Iterator
from itertools import count
from time import time
from typing import Any, cast

import mcp_types as types
from mcp import ClientSession
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError
from mcp_types import INVALID_PARAMS, URL_ELICITATION_REQUIRED

from ...context import RunContext
from ...errors import ToolError
from ...events import InterruptRaised, StepCompleted
from ...messages import ToolSpec
from ...tools import ToolResult, parse_json_object
from .asking import ELICITATION, ServerRequestHandler
from .connection import MCPConnection
from .convert import effect_of_hints, is_repeatable, optional_in, outcome_of_result
from .gone import AuthorizationRequiredError
from .visits import UserAuthorization
from .ways import MCPTransport

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

    def checked(self, arguments: str) -> dict[str, Any] | ToolResult:
        """The arguments, or an outcome that says why they are none. Whether they fit is for the server to say."""
        given = parse_json_object(arguments, self.spec.name)
        if isinstance(given, ToolResult):
            return given
        return {key: value for key, value in given.items() if value is not None or key not in self._may_be_null}

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Call it, and once more with the answers each time the server needs some to go on."""
        given = self.checked(arguments)
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
