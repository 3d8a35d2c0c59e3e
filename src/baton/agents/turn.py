"""One turn of an agent: the execution of the calls in one response. This is the handoff contract.

1. All ordinary calls run first, on this agent, wherever a transfer is among them.
2. If one of them raises an interrupt, the turn is suspended before anything below happens.
3. Then at most one transfer is followed. Precedence: transfer, exit, end of the agent's task, final result, the agent's
   `tool_use_behavior`, text. A transfer or an exit leaves nothing undone that the model cannot do later, or ends
   everything; the end of a task would lose a transfer, because the agent is no longer active.
4. Every call gets exactly one result; a transfer that is not followed gets an error result.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from functools import partial
from time import time
from typing import Any, TypedDict, cast, final

import msgspec
from typing_extensions import Unpack

from ..context import HistoryEntry, RunContext
from ..context.history import WHOLE_MESSAGE, turn_entries
from ..context.run_context import SuspendRun
from ..errors import BatonError, TransferError, UnknownToolError, quote_names
from ..events import Action, AgentResponded, Exit, StepCompleted, ToolReturned, Transfer
from ..handoffs.routes import Route, TransferRefusal
from ..handoffs.tasks import TASK_TOOLS
from ..log import DISMISSED
from ..messages import Content, ToolCall, text_of
from ..tools import Tool
from .activation import AgentContext
from .calls import (
    PendingTransfer,
    TransferAdmitted,
    TransferDenied,
    admit_live_transfer,
    admit_transfer,
    ask_target_to_accept,
    execute_call,
    recorded_call,
)
from .definition import EXIT_TOOL, AgentWithTools, ToolTable
from .task_calls import TaskDecision, decide_task_calls


@final
class TurnOutcome(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a turn."""

    action: Action | None = None
    """The transfer or exit to follow."""
    answer: str | None = None
    """The final result of a tool."""
    fault: BatonError | None = None
    """The model's mistake in its calls, if any."""
    is_denied: bool = False
    """True if a transfer was asked for and denied: the model is asked again, whatever the tools returned."""


CONTINUE = TurnOutcome()
"""The outcome of a turn after which the model is called again."""
_ADMITTED = TransferAdmitted()


class _TransferRequest(msgspec.Struct, frozen=True, gc=False):
    """A transfer that a call asks for, and the call's result if it is followed."""

    position: int
    target: str
    result: Content
    route: Route | None = None


class ResultFields(TypedDict, total=False):
    """Optional fields of the result of a call that no tool executes; see `ToolReturned`."""

    is_error: bool
    is_transfer_refused: bool
    requested_agent: str
    is_unknown_tool: bool
    is_task_call: bool


class _ExitArguments(msgspec.Struct):
    final_result: str


def execute_turn(
    agent: AgentWithTools[Any, Any], ctx: AgentContext[Any], response: AgentResponded, tools: ToolTable
) -> TurnOutcome | Coroutine[Any, Any, TurnOutcome | ToolReturned | PendingTransfer]:
    """Execute the calls of one response.

    Args:
        agent: The agent.
        ctx: The context of its activation.
        response: The recorded response.
        tools: The tools that the model was offered.

    Returns:
        The outcome, or a coroutine that returns it if there is something to wait for. The coroutine of a response with
        one tool call returns the result of that call, for `finish_lone` or `follow_pending`.
    """
    calls, log, key = response.message.tool_calls, ctx._run.log, f"{response.key}.0"
    if len(calls) == 1 and not (log.has_past and log.has(f"{key}/{DISMISSED}")):
        # Fast path: nearly every turn has one call.
        call = calls[0]
        tool = tools.by_name.get(call.name)
        if tool is None:
            route = ctx._routes.match(call, response.disabled_handoffs)
            if type(route) is Route and route.id not in response.disabled_handoffs:
                if route.is_plain and log.sink is None:
                    return _follow_lone(ctx, response, route.target, route.result, route.id)
                return _transfer_lone(TurnExecutor(agent, ctx, response, tools), route)
        elif not response.disabled_tools or call.name not in response.disabled_tools:
            # Without hooks, recorded calls are read without awaiting, so that replaying a long log is fast.
            done = recorded_call(ctx, key) if log.has_past and ctx._hooks is None else None
            if done is None:
                return execute_call(ctx, tool, call, key=key)
            if type(done) is ToolReturned:
                return finish_lone(ctx, response, done)
    return TurnExecutor(agent, ctx, response, tools).run()


async def follow_pending(turn: "TurnExecutor", pending: PendingTransfer) -> TurnOutcome:
    """Follow the transfer that the only call of a response returned, unless the target declines.

    Args:
        turn: Executes the response.
        pending: The result of the call.
    """
    ctx, response = turn.ctx, turn.response
    if _get_accepts(ctx, pending.target) is not None:
        return await turn.decide_on(_TransferRequest(0, pending.target, pending.content))
    outcome = _follow_lone(ctx, response, pending.target, pending.content, response.message.tool_calls[0].name)
    await ctx._run.log.settle()
    return outcome


async def _transfer_lone(turn: "TurnExecutor", route: Route) -> TurnOutcome:
    """Check and follow a transfer that is the only call of a response."""
    ctx, response, payload = turn.ctx, turn.response, None
    if not route.is_plain:
        call = response.message.tool_calls[0]
        inner = RunContext(ctx._run, ctx._origin, f"{response.key}.0", call)
        verdict = await admit_transfer(route, inner, call, source=turn.agent.name)
        if type(verdict) is not TransferAdmitted:
            return turn.refuse(cast("TransferDenied", verdict), route.target)
        payload = verdict.payload
    outcome = _follow_lone(ctx, response, route.target, route.result, route.id, payload)
    if ctx._run.log.sink is not None:
        await ctx._run.log.settle()
    return outcome


def finish_lone(ctx: AgentContext[Any], response: AgentResponded, returned: ToolReturned) -> TurnOutcome:
    """Add the only call of a response and its result to the history.

    Args:
        ctx: The context of the activation.
        response: The recorded response.
        returned: The result of the call.
    """
    entries, origin = ctx._history.entries, ctx._origin
    entries.append(HistoryEntry(response.message, origin))
    entries.append(HistoryEntry(returned.message, origin, returned.is_final))
    return TurnOutcome(None, text_of(returned.content)) if returned.is_final else CONTINUE


def _follow_lone(
    ctx: AgentContext[Any], response: AgentResponded, target: str, content: Content, via: str, payload: Any = None
) -> TurnOutcome:
    """Record the result of a transfer that is the only call of a response, and follow it."""
    entries, origin, call = ctx._history.entries, ctx._origin, response.message.tool_calls[0]
    result = record_result(ctx, f"{response.key}.0", call, content, requested_agent=target)
    entries.append(HistoryEntry(response.message, origin, False, (), (0,)))
    entries.append(HistoryEntry(result.message, origin, False, (), (WHOLE_MESSAGE,)))
    return TurnOutcome(Transfer(target, call.id, payload, via))


def record_result(
    ctx: AgentContext[Any], key: str, call: ToolCall, content: Content, **fields: Unpack[ResultFields]
) -> ToolReturned:
    """Record the result of a call that no tool executes, unless it is recorded already.

    Args:
        ctx: The context of the activation.
        key: The key of the result.
        call: The call.
        content: The text of the result.
        **fields: Optional fields of the result.
    """
    log = ctx._run.log
    event = log.find(key, ToolReturned) if log.has_past else None
    if event is None:
        event = ToolReturned(key, ctx._origin, time(), call.id, call.name, content, **fields)
        log.write(event)
    return event


class TurnExecutor(msgspec.Struct):
    """Executes the calls of one response.

    Args:
        agent: The agent.
        ctx: The context of its activation.
        response: The recorded response.
        tools: The tools that the model was offered.
        is_concurrent: Whether other responses of this activation may be executed at the same time.
    """

    agent: AgentWithTools[Any, Any]
    ctx: AgentContext[Any]
    response: AgentResponded
    tools: ToolTable
    is_concurrent: bool = False
    _requests: list[_TransferRequest] = []
    _exits: list[int] = []
    _task_calls: list[int] = []
    _undone: list[int] = []
    """Positions of transfers that are not followed, and of calls that end a task; later turns do not read them."""
    _results: list[ToolReturned | None] = []
    _fault: BatonError | None = None

    def __post_init__(self) -> None:
        self._results = [None] * len(self._calls)

    @property
    def _calls(self) -> tuple[ToolCall, ...]:
        return self.response.message.tool_calls

    async def run(self) -> TurnOutcome:
        """Execute the tool calls, then decide on transfers and exits."""
        ordinary = self._classify()
        if len(ordinary) == 1:
            await self._execute(*ordinary[0])
        elif ordinary:
            await self._execute_all(ordinary)
        return await self._decide()

    async def decide_on(self, request: _TransferRequest) -> TurnOutcome:
        """Decide on the transfer of a single call."""
        self._requests.append(request)
        return await self._decide()

    def refuse(self, verdict: TransferDenied, target: str) -> TurnOutcome:
        """Refuse the transfer of a single call."""
        self._refuse(0, verdict.text, verdict.fault, requested=target)
        self._add_to_history(None)
        return TurnOutcome(fault=self._fault, is_denied=True)

    async def _decide(self) -> TurnOutcome:
        if not self._requests and not self._exits and not self._task_calls:
            return self._finish_without_action()
        winner = self._requests[0] if len(self._requests) == 1 else self._choose()
        exit_action: Action | None = self._exit(winner) if self._exits else None
        if self._task_calls:
            exit_action = await self._end_task(winner, exit_action) or exit_action
        payload: Any = None
        is_denied = False
        if winner is not None:
            verdict = await self._admit(winner)
            if isinstance(verdict, TransferDenied):
                self._refuse(winner.position, verdict.text, verdict.fault, requested=winner.target)
                winner, is_denied = None, True
            else:
                payload = verdict.payload
                self._record(winner.position, winner.result, requested_agent=winner.target)
        if self.ctx._run.log.sink is not None:
            await self.ctx._run.log.settle()
        if winner is None and exit_action is None and not self._requests:
            return self._finish_without_action()
        self._add_to_history(winner)
        if winner is not None:
            call = self._calls[winner.position]
            via = call.name if winner.route is None else winner.route.id
            return TurnOutcome(Transfer(winner.target, call.id, payload, via), fault=self._fault)
        if self._requests and not is_denied:
            raise self._too_many_transfers()
        return TurnOutcome(exit_action, fault=self._fault, is_denied=is_denied)

    async def _admit(self, request: _TransferRequest) -> TransferAdmitted | TransferDenied:
        ctx = self.ctx
        if not self.is_concurrent:
            return await self._check_edge(request)
        inner = RunContext(
            ctx._run, ctx._origin, f"{self.response.key}.{request.position}", self._calls[request.position], ctx
        )
        return await admit_live_transfer(inner, request.target, partial(self._check_edge, request))

    async def _check_edge(self, request: _TransferRequest) -> TransferAdmitted | TransferDenied:
        route, ctx = request.route, self.ctx
        if route is not None and route.is_plain:
            return _ADMITTED
        call = self._calls[request.position]
        inner = RunContext(ctx._run, ctx._origin, f"{self.response.key}.{request.position}", call)
        if route is not None:
            return await admit_transfer(route, inner, call, source=self.agent.name)
        reason = await ask_target_to_accept(_get_accepts(ctx, request.target), inner, None)
        return (
            _ADMITTED if reason is None else TransferDenied(f"Not transferred: [{request.target}] declined: {reason}")
        )

    def _finish_without_action(self) -> TurnOutcome:
        final = [position for position, result in enumerate(self._results) if result is not None and result.is_final]
        if not final:
            self._add_to_history(None)
            return TurnOutcome(fault=self._fault)
        self._add_to_history(None, answer=final[-1])
        result = self._results[final[-1]]
        return TurnOutcome(None, text_of(result.content) if result is not None else None, self._fault)

    def _classify(self) -> list[tuple[int, Tool]]:
        """Return the ordinary calls; collect transfers and exits, refuse unknown tools."""
        tools, routes = self.tools, self.ctx._routes
        ordinary: list[tuple[int, Tool]] = []
        has_past = self.ctx._run.log.has_past
        for position, call in enumerate(self._calls):
            tool = tools.by_name.get(call.name)
            if has_past and self._is_dismissed(position):
                continue
            if tool is not None and call.name in self.response.disabled_tools:
                self._refuse_unknown(position, is_disabled=True)
            elif tool is not None:
                ordinary.append((position, tool))
            elif (route := routes.match(call, self.response.disabled_handoffs)) is not None:
                self._add_transfer(position, route)
            elif tools.has_exit and call.name == EXIT_TOOL:
                self._exits.append(position)
            elif self.ctx._task is not None and call.name in TASK_TOOLS:
                self._task_calls.append(position)
            else:
                self._refuse_unknown(position)
        return ordinary

    def _is_dismissed(self, position: int) -> bool:
        """Record the result of a call that was dismissed; return whether it was."""
        found = self.ctx._run.log.find(f"{self.response.key}.{position}/{DISMISSED}", StepCompleted)
        if found is not None:
            self._record(position, str(found.result), is_error=True)
        return found is not None

    async def _execute_all(self, ordinary: Sequence[tuple[int, Tool]]) -> None:
        # If one raises an interrupt or fails, the others finish first: their results must be recorded.
        ended: list[BaseException | None]
        if self.ctx._run.log.has_past:
            self._apply_recorded_changes(ordinary)
        if self.agent.concurrent_tools:
            limit = self.agent.max_parallel_tools
            execute = self._execute if limit is None else partial(self._execute_limited, asyncio.Semaphore(limit))
            ended = await asyncio.gather(*[execute(*one) for one in ordinary], return_exceptions=True)
        else:
            ended = [await _capture_error(self._execute(*one)) for one in ordinary]
        if self.ctx._run.log.has_past:
            # Values were written in the order in which the calls finished.
            for result in sorted(filter(None, self._results), key=lambda result: result.timestamp):
                self.ctx._apply_changes(result.value_changes)
        raised = [error for error in ended if error is not None]
        if raised:
            raise next((error for error in raised if not isinstance(error, SuspendRun)), raised[0])

    def _apply_recorded_changes(self, ordinary: Sequence[tuple[int, Tool]]) -> None:
        """Apply the value changes of finished calls: the calls that are resumed have seen them."""
        keys = [f"{self.response.key}.{position}" for position, _ in ordinary]
        found = [self.ctx._run.log.find(key, ToolReturned) for key in keys]
        for result in sorted(filter(None, found), key=lambda result: result.timestamp):
            self.ctx._apply_changes(result.value_changes)

    async def _execute(self, position: int, tool: Tool) -> None:
        key = f"{self.response.key}.{position}"
        done = await execute_call(self.ctx, tool, self._calls[position], key=key)
        if type(done) is ToolReturned:
            self._results[position] = done
        elif type(done) is PendingTransfer:
            self._requests.append(_TransferRequest(position, done.target, done.content))

    async def _execute_limited(self, free: asyncio.Semaphore, position: int, tool: Tool) -> None:
        async with free:
            await self._execute(position, tool)

    def _add_transfer(self, position: int, route: Route | TransferRefusal) -> None:
        reachable = self.ctx._routes.reachable
        if isinstance(route, TransferRefusal):
            self._refuse(position, route.text, TransferError(self.agent.name, route.wish, reachable))
        elif route.id in self.response.disabled_handoffs:
            others = [name for name in reachable if name != route.target]
            reason = f"[{route.target}] is not available now"
            text = f"Not transferred: {reason}; you can transfer to: {quote_names(others)}."
            fault = TransferError(self.agent.name, route.target, reachable, reason=text)
            self._refuse(position, text, fault, requested=route.target)
        else:
            self._requests.append(_TransferRequest(position, route.target, route.result, route))

    def _refuse(self, position: int, text: str, fault: BatonError | None, *, requested: str = "") -> None:
        self._undone.append(position)
        self._record(position, text, is_error=True, is_transfer_refused=True, requested_agent=requested)
        self._fault = self._fault or fault

    def _refuse_unknown(self, position: int, *, is_disabled: bool = False) -> None:
        name, response = self._calls[position].name, self.response
        tools = self.tools.enabled_specs(response.disabled_tools)
        transfers = self.ctx._routes.enabled_specs(response.disabled_handoffs)
        ends_task = self.ctx._task.specs if self.ctx._task is not None else ()
        available = [spec.name for spec in (*tools, *transfers, *ends_task)]
        problem = f"The tool `{name}` is not available now" if is_disabled else f"There is no tool `{name}`"
        text = f"{problem}; the tools are: {quote_names(available)}."
        self._record(position, text, is_error=True, is_unknown_tool=not is_disabled)
        self._fault = self._fault or UnknownToolError(self.agent.name, name, available)

    def _choose(self) -> _TransferRequest | None:
        """Choose the transfer to follow, and record the results of the others."""
        requests = sorted(self._requests, key=lambda request: request.position)
        if not requests:
            return None
        policy = self.ctx._options.multiple_transfers
        winner = {"first": requests[0], "last": requests[-1], "error": None}[policy]
        for request in requests:
            if request is winner:
                continue
            self._undone.append(request.position)
            reason = f"that is the one to [{winner.target}]" if winner else "several were asked for at once"
            target = request.target
            text = f"Not transferred to [{target}]: only one transfer is followed per response, and {reason}."
            self._record(request.position, text, is_error=True, is_transfer_refused=True, requested_agent=target)
        return winner

    def _exit(self, winner: _TransferRequest | None) -> Exit | None:
        """Return the exit, unless a transfer takes precedence, and record the results of exit calls."""
        action: Exit | None = None
        for position in self._exits:
            call = self._calls[position]
            if self._requests:
                transfer = f"a transfer to [{winner.target}]" if winner else "a transfer"
                self._record(position, f"Not ended: {transfer} was asked for in the same response.", is_error=True)
                continue
            try:
                final_result = msgspec.json.decode(call.arguments, type=_ExitArguments).final_result
            except msgspec.MsgspecError:
                self._record(position, 'Not ended: arguments must be {"final_result": "…"}.', is_error=True)
                continue
            action = Exit(final_result)
            self._record(position, "The task is ended.")
        return action

    async def _end_task(self, winner: _TransferRequest | None, exit_action: Action | None) -> Action | None:
        """Return the end of the task, unless something takes precedence; record the results."""
        hindrance = ""
        if self._requests:
            hindrance = f"a transfer to [{winner.target}]" if winner else "a transfer"
        elif exit_action is not None:
            hindrance = "the end of the run"
        self._undone.extend(self._task_calls)
        calls = [(position, self._calls[position]) for position in self._task_calls]
        decision: TaskDecision = await decide_task_calls(
            self.ctx, self.response.key, calls, hindrance=hindrance, is_concurrent=self.is_concurrent
        )
        for position, (text, is_error) in decision.results.items():
            self._record(position, text, is_error=is_error, is_task_call=True)
        self._fault = self._fault or decision.fault
        return decision.action

    def _record(self, position: int, content: Content, **fields: Unpack[ResultFields]) -> None:
        key, call = f"{self.response.key}.{position}", self._calls[position]
        self._results[position] = record_result(self.ctx, key, call, content, **fields)

    def _add_to_history(self, winner: _TransferRequest | None, *, answer: int | None = None) -> None:
        """Add the response and its results, in the order of the calls, to the history."""
        history, hidden = self.ctx._history, tuple(self._undone)
        if hidden:
            history.hidden_at.append(len(history.entries))
        followed = (winner.position,) if winner is not None else ()
        results = [result.message if result is not None else None for result in self._results]
        origin, message = self.ctx._origin, self.response.message
        history.entries += turn_entries(message, results, origin, hidden=hidden, followed=followed, answer=answer)

    def _too_many_transfers(self) -> TransferError:
        requests = [request.target for request in self._requests]
        several = f"several transfers at once: {quote_names(requests)}"
        because = f"`{self.agent.name}` asked for {several}; only one is allowed"
        return TransferError(self.agent.name, requests[0], self.ctx._routes.reachable, reason=because)


def _get_accepts(ctx: AgentContext[Any], target: str) -> Any:
    guest = ctx._run.dynamic_agents.get(target)
    if guest is not None:
        return getattr(guest, "accepts", None)
    route = ctx._routes.edge(target, "")
    return route.accepts if route is not None else None


async def _capture_error(work: Awaitable[None]) -> BaseException | None:
    try:
        await work
    except (SuspendRun, Exception) as error:  # noqa: BLE001 - raised again once the other tools have finished
        return error
    return None
