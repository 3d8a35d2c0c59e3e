"""An agent as a tool of another: the caller keeps the floor, and the agent's answer is the result of the call."""

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import Struct

from ..context import HistoryEntry, Limits, RunContext
from ..context.history import History
from ..context.run_state import UsageMeter
from ..context.values import TrackedValues
from ..errors import LimitError, SetupError, check_choice, ends_run
from ..handoffs import tool_name_for
from ..handoffs.input import HandoffInputParser
from ..messages import AssistantMessage, Message, ToolMessage, ToolSpec, UserMessage, text_of
from ..tools import NeedsApproval, Tool, ToolResult
from ..tools.results import to_tool_result
from ..tools.wrappers import ApprovalTool
from .base import AgentContext, BaseAgent, FlowOutcome, HistoryPolicy
from .hooks import maybe_await, run_with_deadline

_logger = logging.getLogger("baton.agents")

Extractor: TypeAlias = Callable[["AgentToolResult"], Any]

_REQUEST_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "request": {"type": "string", "description": "What the agent should do, with all it needs to know."}
    },
    "required": ["request"],
    "additionalProperties": False,
}
_PROJECTIONS = ("none", "rewritten", "verbatim", "lineage", "answers")


class _RequestArguments(Struct):
    request: str


_read_request = msgspec.json.Decoder(_RequestArguments).decode


class _InnerRun(Struct, frozen=True, gc=False):
    """One call under way. What is said in it begins at `mark` in its history."""

    work: Coroutine[Any, Any, FlowOutcome]
    history: History
    mark: int
    values: TrackedValues
    meter: UsageMeter


class AgentToolResult(Struct, frozen=True):
    """What an agent that was called as a tool came to: its output, all that was said, and who ended it."""

    output: Any
    messages: tuple[Message, ...]
    agent: str


class AgentTool:
    """Calls an agent with a history of its own. What it does is logged under the call; what it asks reaches the run."""

    def __init__(
        self,
        agent: BaseAgent[Any, Any],
        *,
        name: str | None,
        description: str | None,
        input_type: Any,
        history: HistoryPolicy,
        output: Extractor | None,
        is_silent: bool,
        limits: Limits | None,
    ) -> None:
        self.agent = agent
        self._history = history
        self._output = output
        self._is_silent = is_silent
        self._limits = limits
        what = f"the input_type of `{agent.name}` as a tool"
        self._reader = None if input_type is None else HandoffInputParser(agent.name, input_type, what=what)
        self.spec = ToolSpec(
            name or tool_name_for(agent.name),
            agent.description if description is None else description,
            _REQUEST_SCHEMA if self._reader is None else self._reader.schema,
            strict=True,
        )

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Let the agent work on the request. What ends it early is told to the caller's model."""
        told = self._message(arguments)
        if isinstance(told, ToolResult):
            return told
        visit, prefix = self._visit(ctx, told), f"{ctx._scope}/"
        if self._is_silent:
            ctx._run.log.mute(prefix)
        try:
            outcome = await visit.work
        except Exception as error:
            # If a share of its own is used up, the caller can go on.
            if ends_run(error) and not (isinstance(error, LimitError) and error.share is visit.meter):
                raise
            _logger.warning("`%s`, called as a tool by `%s`, failed", self.agent.name, ctx.agent, exc_info=True)
            return ToolResult(f"[{self.agent.name}] failed: {type(error).__name__}: {error}", is_error=True)
        finally:
            if self._is_silent:
                ctx._run.log.unmute(prefix)
            # Recorded with the call as a whole: a replay takes its result and does not go inside.
            changes = visit.values.changes()
            if changes is not None:
                ctx.values._apply(changes)
        if self._output is None and outcome.output is not None:
            return to_tool_result(outcome.output, self.spec.name)
        return await self._result(outcome, [entry.message for entry in visit.history.entries[visit.mark :]])

    def checked(self, arguments: str) -> dict[str, Any] | ToolResult:
        """The arguments, if they fit; else an outcome that tells the model what does not."""
        told = self._message(arguments)
        return told if isinstance(told, ToolResult) else msgspec.json.decode(arguments)

    def _visit(self, ctx: RunContext[Any], told: str) -> "_InnerRun":
        caller = ctx._caller
        if not isinstance(caller, AgentContext):
            raise SetupError(f"the agent `{self.agent.name}` can be called as a tool only by another agent's model")
        history = History() if self._history == "none" else caller._history.fork()
        history.entries.append(HistoryEntry(UserMessage(told)))
        history.inputs = len(history.entries)
        meter = ctx._run.meter if self._limits is None else UsageMeter(self._limits, ctx._run.meter)
        values = TrackedValues(ctx._run.values)
        # Not AgentContext.inside: that would put it under the caller's activation instead of under this call.
        work = cast("AgentContext[Any]", caller)._flow.inside(
            self.agent,
            run=ctx._run.part(values=values, meter=meter),
            history=history,
            prefix=f"{ctx._scope}/",
            after=ctx._origin,
            projection=None if self._history == "none" else cast("HistoryPolicy", self._history),
        )
        if self._limits is not None and (seconds := self._limits.seconds) is not None:
            work = run_with_deadline(work, seconds, lambda: LimitError("seconds", seconds, ctx.path, share=meter))
        return _InnerRun(work, history, history.inputs, values, meter)

    def _message(self, arguments: str) -> str | ToolResult:
        """What the agent is told; or an outcome that says what is wrong with the arguments."""
        try:
            if self._reader is None:
                return _read_request(arguments).request
            return msgspec.json.encode(self._reader.dump(self._reader.read(arguments))).decode()
        except (ValueError, msgspec.MsgspecError) as error:
            return ToolResult(f"The arguments of `{self.spec.name}` do not fit: {error}.", is_error=True)

    async def _result(self, outcome: FlowOutcome, messages: Sequence[Message]) -> ToolResult:
        if self._output is not None:
            report = AgentToolResult(outcome.output, tuple(messages), outcome.origin.agent)
            return to_tool_result(await maybe_await(self._output(report)), self.spec.name)
        said = next((text for text in map(_text_in, reversed(messages)) if text), None)
        return to_tool_result(said, self.spec.name)

    def __repr__(self) -> str:
        return f"AgentTool({self.agent.name!r})"


def _text_in(message: Message) -> str:
    return text_of(message.content) if isinstance(message, AssistantMessage | ToolMessage) else ""


def agent_tool(
    agent: BaseAgent[Any, Any],
    *,
    name: str | None = None,
    description: str | None = None,
    input_type: Any = None,
    history: HistoryPolicy = "none",
    output_extractor: Extractor | None = None,
    stream_events: bool = True,
    limits: Limits | None = None,
    needs_approval: NeedsApproval = False,
) -> Tool:
    """An agent as a tool, see `BaseAgent.as_tool`."""
    if output_extractor is not None and not callable(output_extractor):
        raise SetupError(
            f"output of {agent.name}.as_tool() is {output_extractor!r}; give a function of the AgentToolResult"
        )
    if limits is not None and not isinstance(limits, Limits):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SetupError(f"limits of {agent.name}.as_tool() is {limits!r}; give Limits(…)")
    if not callable(history):
        check_choice(f"history of {agent.name}.as_tool()", history, _PROJECTIONS)
    made = AgentTool(
        agent,
        name=name,
        description=description,
        input_type=input_type,
        history=history,
        output=output_extractor,
        is_silent=not stream_events,
        limits=limits,
    )
    return made if needs_approval is False else ApprovalTool(made, needs_approval)
