"""One turn of an agent: what becomes of the calls in one response. This is the handoff contract.

1. All ordinary calls run first, on this agent, wherever a transfer stands among them.
2. If one of them asks a question, the turn waits for the answer before anything below happens.
3. Then at most one transfer is followed. It beats an exit, which beats a result that is itself the answer.
4. Every call gets exactly one result; what lost or was refused is told so.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from time import time
from typing import Any, TypedDict, cast

import msgspec
from typing_extensions import Unpack

from ..context import HistoryEntry, RunContext
from ..context.history import WHOLE_MESSAGE
from ..context.run_context import SuspendRun
from ..errors import BatonError, TransferError, UnknownToolError, quote_names
from ..events import Action, AgentResponded, Exit, ToolReturned, Transfer
from ..handoffs.routes import Route, TransferRefusal
from ..messages import Content, ToolCall, text_of
from ..tools import Tool
from .base import AgentContext
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


class TurnOutcome(msgspec.Struct, frozen=True, gc=False):
    """What a turn came to: an action, an answer, or neither; and what was wrong with its calls, if anything."""

    action: Action | None = None
    answer: str | None = None
    fault: BatonError | None = None


_NOTHING_YET = TurnOutcome()
_ADMITTED = TransferAdmitted()


class _TransferRequest(msgspec.Struct, frozen=True, gc=False):
    """A transfer that a call asks for, and what the call is told if it is followed."""

    position: int
    target: str
    result: Content
    route: Route | None = None


class _ResultFields(TypedDict, total=False):
    """What is recorded of a result besides its content."""

    is_error: bool
    is_undone: bool
    wanted: str
    is_unknown: bool


class _ExitArguments(msgspec.Struct):
    final_result: str


async def execute_turn(
    agent: AgentWithTools[Any, Any], ctx: AgentContext[Any], said: AgentResponded, toolbox: ToolTable
) -> TurnOutcome:
    """Carry out the calls of one response, with the tools that were offered for it."""
    calls: Sequence[ToolCall] = said.message.tool_calls
    if len(calls) != 1:
        return await TurnExecutor(agent, ctx, said, toolbox).run()
    # A lone call has nothing to compete with; it is also what nearly every turn consists of.
    call, key = calls[0], f"{said.key}.0"
    tool = toolbox.by_name.get(call.name)
    wanted = ctx._routes.wanted_by(call) if tool is None else None
    entries = ctx._history.entries
    payload: Any = None
    if tool is not None:
        # What is on record and of no interest to hooks need not be waited for: a long log is read through in no time.
        done = recorded_call(ctx, key) if ctx._run.log.has_past and ctx._hooks is None else None
        if done is None:
            done = await execute_call(ctx, tool, call, key=key)
        if type(done) is ToolReturned:
            entries.append(HistoryEntry(said.message, ctx._origin))
            entries.append(HistoryEntry(done.message, ctx._origin, done.is_final))
            return TurnOutcome(None, text_of(done.content)) if done.is_final else _NOTHING_YET
        target, content = cast("PendingTransfer", done).target, cast("PendingTransfer", done).content
        if _accepts_of(ctx, target) is not None:
            return await TurnExecutor(agent, ctx, said, toolbox).decide_on(_TransferRequest(0, target, content))
    elif type(wanted) is Route and wanted.tool not in said.disabled_handoffs:
        target, content = wanted.target, wanted.result
        if not wanted.is_plain:
            inner = RunContext(ctx._run, ctx._origin, key, call)
            verdict = await admit_transfer(wanted, inner, call, source=agent.name)
            if type(verdict) is not TransferAdmitted:
                return TurnExecutor(agent, ctx, said, toolbox).turned_down(cast("TransferDenied", verdict), target)
            payload = verdict.payload
    else:
        return await TurnExecutor(agent, ctx, said, toolbox).run()
    result = record_result(ctx, key, call, content, wanted=target)
    if ctx._run.log.sink is not None:
        await ctx._run.log.settle()
    entries.append(HistoryEntry(said.message, ctx._origin, False, (), (0,)))
    entries.append(HistoryEntry(result.message, ctx._origin, False, (), (WHOLE_MESSAGE,)))
    return TurnOutcome(Transfer(target, call.id, payload, call.name))


def record_result(
    ctx: AgentContext[Any],
    key: str,
    call: ToolCall,
    content: Content,
    *,
    is_error: bool = False,
    is_undone: bool = False,
    wanted: str = "",
    is_unknown: bool = False,
) -> ToolReturned:
    """The recorded result of a call that no tool carries out; recorded now if it is not there yet.

    `wanted` is the agent to which it asked for a transfer, if it did.
    """
    log = ctx._run.log
    event = log.find(key, ToolReturned) if log.has_past else None
    if event is None:
        # By position, because this runs once for every transfer.
        now, is_final, changes, breaks = time(), False, None, False
        event = ToolReturned(
            key,
            ctx._origin,
            now,
            call.id,
            call.name,
            content,
            is_error,
            is_final,
            changes,
            breaks,
            is_undone,
            wanted,
            is_unknown,
        )
        log.write(event)
    return event


class TurnExecutor:
    """Carries out the calls of one response."""

    __slots__ = (
        "_agent",
        "_calls",
        "_ctx",
        "_exits",
        "_fault",
        "_is_beside_others",
        "_results",
        "_said",
        "_toolbox",
        "_undone",
        "_wishes",
    )

    def __init__(
        self,
        agent: AgentWithTools[Any, Any],
        ctx: AgentContext[Any],
        said: AgentResponded,
        toolbox: ToolTable,
        *,
        is_beside_others: bool = False,
    ) -> None:
        """`is_beside_others` says that other responses of this activation may be carried out at the same time."""
        self._is_beside_others = is_beside_others
        self._agent = agent
        self._ctx = ctx
        self._said = said
        self._toolbox = toolbox
        self._calls = said.message.tool_calls
        self._results: list[ToolReturned | None] = [None] * len(self._calls)
        self._wishes: list[_TransferRequest] = []
        self._exits: list[int] = []
        self._undone: list[int] = []
        """Positions of transfers that are not followed: nobody reads of them later."""
        self._fault: BatonError | None = None

    async def run(self) -> TurnOutcome:
        """Run the tools, then decide."""
        ordinary = self._sorted_out()
        if len(ordinary) == 1:
            await self._perform(*ordinary[0])
        elif ordinary:
            await self._perform_all(ordinary)
        return await self._decide()

    async def decide_on(self, wish: _TransferRequest) -> TurnOutcome:
        """Go on with a lone call that has asked for this transfer."""
        self._wishes.append(wish)
        return await self._decide()

    def turned_down(self, verdict: TransferDenied, target: str) -> TurnOutcome:
        """Go on with a lone call whose transfer must not happen."""
        self._refuse(0, verdict.text, verdict.fault, wanted=target)
        self._remember(None)
        return TurnOutcome(fault=self._fault)

    async def _decide(self) -> TurnOutcome:
        if not self._wishes and not self._exits:
            return self._without_action()
        winner = self._wishes[0] if len(self._wishes) == 1 else self._choose()
        exit_action = self._exit(winner) if self._exits else None
        payload: Any = None
        is_denied = False
        if winner is not None:
            verdict = await self._verdict_on(winner)
            if isinstance(verdict, TransferDenied):
                self._refuse(winner.position, verdict.text, verdict.fault, wanted=winner.target)
                winner, is_denied = None, True
            else:
                payload = verdict.payload
                self._record(winner.position, winner.result, wanted=winner.target)
        if self._ctx._run.log.sink is not None:
            await self._ctx._run.log.settle()
        if winner is None and exit_action is None and not self._wishes:
            return self._without_action()
        self._remember(winner)
        if winner is not None:
            call = self._calls[winner.position]
            return TurnOutcome(Transfer(winner.target, call.id, payload, call.name), fault=self._fault)
        if self._wishes and not is_denied:
            raise self._too_many_transfers()
        return TurnOutcome(exit_action, fault=self._fault)

    async def _verdict_on(self, wish: _TransferRequest) -> TransferAdmitted | TransferDenied:
        ctx = self._ctx
        if not self._is_beside_others:
            return await self._admission_of(wish)
        inner = RunContext(ctx._run, ctx._origin, f"{self._said.key}.{wish.position}", self._calls[wish.position], ctx)
        return await admit_live_transfer(inner, wish.target, partial(self._admission_of, wish))

    async def _admission_of(self, wish: _TransferRequest) -> TransferAdmitted | TransferDenied:
        route, ctx = wish.route, self._ctx
        if route is not None and route.is_plain:
            return _ADMITTED
        call = self._calls[wish.position]
        inner = RunContext(ctx._run, ctx._origin, f"{self._said.key}.{wish.position}", call)
        if route is not None:
            return await admit_transfer(route, inner, call, source=self._agent.name)
        reason = await ask_target_to_accept(_accepts_of(ctx, wish.target), inner, None)
        return _ADMITTED if reason is None else TransferDenied(f"Not transferred: [{wish.target}] declined: {reason}")

    def _without_action(self) -> TurnOutcome:
        final = [position for position, result in enumerate(self._results) if result is not None and result.is_final]
        if not final:
            self._remember(None)
            return TurnOutcome(fault=self._fault)
        self._remember(None, answer=final[-1])
        result = self._results[final[-1]]
        return TurnOutcome(None, text_of(result.content) if result is not None else None, self._fault)

    def _sorted_out(self) -> list[tuple[int, Tool]]:
        """The ordinary calls, by position. Transfers and exits are noted; what nobody knows gets its result."""
        toolbox, routes = self._toolbox, self._ctx._routes
        ordinary: list[tuple[int, Tool]] = []
        for position, call in enumerate(self._calls):
            tool = toolbox.by_name.get(call.name)
            if tool is not None:
                ordinary.append((position, tool))
            elif (wanted := routes.wanted_by(call)) is not None:
                self._consider_transfer(position, wanted)
            elif toolbox.has_exit and call.name == EXIT_TOOL:
                self._exits.append(position)
            else:
                self._refuse_unknown(position)
        return ordinary

    async def _perform_all(self, ordinary: Sequence[tuple[int, Tool]]) -> None:
        # If one asks or fails, the others finish first: what they did must not be lost.
        ended: list[BaseException | None]
        if self._ctx._run.log.has_past:
            self._apply_what_ended(ordinary)
        if self._agent.concurrent_tools:
            ended = await asyncio.gather(*[self._perform(*one) for one in ordinary], return_exceptions=True)
        else:
            ended = [await _ending_of(self._perform(*one)) for one in ordinary]
        if self._ctx._run.log.has_past:
            # Each wrote its values when it ended, not when it was called.
            for result in sorted(filter(None, self._results), key=lambda result: result.timestamp):
                self._ctx._apply_changes(result.value_changes)
        raised = [error for error in ended if error is not None]
        if raised:
            raise next((error for error in raised if not isinstance(error, SuspendRun)), raised[0])

    def _apply_what_ended(self, ordinary: Sequence[tuple[int, Tool]]) -> None:
        """Do to the values what calls did that ended before: those that go on now have seen it."""
        keys = [f"{self._said.key}.{position}" for position, _ in ordinary]
        found = [self._ctx._run.log.find(key, ToolReturned) for key in keys]
        for result in sorted(filter(None, found), key=lambda result: result.timestamp):
            self._ctx._apply_changes(result.value_changes)

    async def _perform(self, position: int, tool: Tool) -> None:
        key = f"{self._said.key}.{position}"
        done = await execute_call(self._ctx, tool, self._calls[position], key=key)
        if type(done) is ToolReturned:
            self._results[position] = done
        elif type(done) is PendingTransfer:
            self._wishes.append(_TransferRequest(position, done.target, done.content))

    def _consider_transfer(self, position: int, wanted: Route | TransferRefusal) -> None:
        reachable = self._ctx._routes.reachable
        if isinstance(wanted, TransferRefusal):
            self._refuse(position, wanted.text, TransferError(self._agent.name, wanted.wish, reachable))
        elif wanted.tool in self._said.disabled_handoffs:
            others = [name for name in reachable if name != wanted.target]
            text = (
                f"Not transferred: [{wanted.target}] is not available now; you can transfer to: {quote_names(others)}."
            )
            fault = TransferError(self._agent.name, wanted.target, reachable, reason=text)
            self._refuse(position, text, fault, wanted=wanted.target)
        else:
            self._wishes.append(_TransferRequest(position, wanted.target, wanted.result, wanted))

    def _refuse(self, position: int, text: str, fault: BatonError | None, *, wanted: str = "") -> None:
        self._undone.append(position)
        self._record(position, text, is_error=True, is_undone=True, wanted=wanted)
        self._fault = self._fault or fault

    def _refuse_unknown(self, position: int) -> None:
        name = self._calls[position].name
        transfers = [spec.name for spec in self._ctx._routes.specs if spec.name not in self._said.disabled_handoffs]
        available = [*self._toolbox.names, *transfers]
        text = f"There is no tool `{name}`; the tools are: {quote_names(available)}."
        self._record(position, text, is_error=True, is_unknown=True)
        self._fault = self._fault or UnknownToolError(self._agent.name, name, available)

    def _choose(self) -> _TransferRequest | None:
        """The transfer to follow. The others get their results here."""
        wishes = sorted(self._wishes, key=lambda wish: wish.position)
        if not wishes:
            return None
        policy = self._ctx._options.multiple_transfers
        winner = {"first": wishes[0], "last": wishes[-1], "error": None}[policy]
        for wish in wishes:
            if wish is winner:
                continue
            self._undone.append(wish.position)
            why = f"that is the one to [{winner.target}]" if winner else "several were asked for at once"
            told = f"Not transferred to [{wish.target}]: only one transfer is followed per response, and {why}."
            self._record(wish.position, told, is_error=True, is_undone=True, wanted=wish.target)
        return winner

    def _exit(self, winner: _TransferRequest | None) -> Exit | None:
        """The exit that was asked for, if a transfer does not come before it. Its calls get their results here."""
        action: Exit | None = None
        for position in self._exits:
            call = self._calls[position]
            if self._wishes:
                whom = f"a transfer to [{winner.target}]" if winner else "a transfer"
                self._record(position, f"Not ended: {whom} was asked for in the same response.", is_error=True)
                continue
            try:
                final_result = msgspec.json.decode(call.arguments, type=_ExitArguments).final_result
            except msgspec.MsgspecError:
                self._record(position, 'Not ended: arguments must be {"final_result": "…"}.', is_error=True)
                continue
            action = Exit(final_result)
            self._record(position, "The task is ended.")
        return action

    def _record(self, position: int, content: Content, **facts: Unpack[_ResultFields]) -> None:
        key, call = f"{self._said.key}.{position}", self._calls[position]
        self._results[position] = record_result(self._ctx, key, call, content, **facts)

    def _remember(self, winner: _TransferRequest | None, *, answer: int | None = None) -> None:
        """Enter the response and its results, in the order of the calls, into the history."""
        history, origin = self._ctx._history, self._ctx._origin
        entries, undone = history.entries, self._undone
        if undone:
            history.hidden_at.append(len(entries))
        followed = (winner.position,) if winner is not None else ()
        entries.append(HistoryEntry(self._said.message, origin, False, tuple(undone), followed))
        for position, result in enumerate(self._results):
            if result is not None:
                entry = HistoryEntry(result.message, origin, position == answer)
                if position in undone:
                    entry.hidden = (WHOLE_MESSAGE,)
                elif position in followed:
                    entry.followed = (WHOLE_MESSAGE,)
                entries.append(entry)

    def _too_many_transfers(self) -> TransferError:
        wishes = [wish.target for wish in self._wishes]
        because = (
            f"`{self._agent.name}` asked for several transfers at once: {quote_names(wishes)}; only one is allowed"
        )
        return TransferError(self._agent.name, wishes[0], self._ctx._routes.reachable, reason=because)


def _accepts_of(ctx: AgentContext[Any], target: str) -> Any:
    guest = ctx._run.dynamic_agents.get(target)
    if guest is not None:
        return getattr(guest, "accepts", None)
    route = ctx._routes.edge(target, "")
    return route.accepts if route is not None else None


async def _ending_of(work: Awaitable[None]) -> BaseException | None:
    try:
        await work
    except (SuspendRun, Exception) as error:  # noqa: BLE001 - raised again once the other tools have finished
        return error
    return None
