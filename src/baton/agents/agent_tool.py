"""An agent as a tool: the caller stays active, and the agent's answer is the result of the call."""

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from ..arguments import check_choice
from ..context import HistoryEntry, Limits, RunContext
from ..context.history import History
from ..context.run_state import UsageMeter
from ..context.values import TrackedValues
from ..errors import LimitError, SetupError, ends_run
from ..handoffs import tool_name_for
from ..handoffs.input import HandoffInputParser
from ..messages import AssistantMessage, Message, ToolMessage, ToolSpec, UserMessage, text_of
from ..tools import NeedsApproval, Tool, ToolResult
from ..tools.results import to_tool_result
from ..tools.wrappers import ApprovalTool
from .base import AgentContext, AgentToolResult, BaseAgent, FlowOutcome, HistoryPolicy
from .hooks import maybe_await, run_with_deadline

_logger = logging.getLogger("baton.agents")

_REQUEST_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "request": {"type": "string", "description": "What the agent should do, with all it needs to know."}
    },
    "required": ["request"],
    "additionalProperties": False,
}
_HISTORY_POLICIES = ("none", "rewritten", "verbatim", "lineage", "answers")


class _RequestArguments(Struct):
    request: str


_parse_request = msgspec.json.Decoder(_RequestArguments).decode


class _InnerRun(Struct, frozen=True, gc=False):
    """One running call. Its messages begin at `start` in its history."""

    work: Coroutine[Any, Any, FlowOutcome]
    history: History
    start: int
    values: TrackedValues
    meter: UsageMeter


class AgentTool:
    """A tool that runs an agent with its own history; its events are logged under the call."""

    def __init__(
        self,
        agent: BaseAgent[Any, Any],
        *,
        name: str | None,
        description: str | None,
        input_type: Any,
        history: HistoryPolicy,
        output_extractor: Callable[[AgentToolResult[Any]], Any] | None,
        stream_events: bool,
        limits: Limits | None,
    ) -> None:
        self.agent = agent
        self._history = history
        self._output_extractor = output_extractor
        self._stream_events = stream_events
        self._limits = limits
        what = f"the input_type of `{agent.name}` as a tool"
        self._input_parser = None if input_type is None else HandoffInputParser(agent.name, input_type, what=what)
        self.spec = ToolSpec(
            name or tool_name_for(agent.name),
            agent.description if description is None else description,
            _REQUEST_SCHEMA if self._input_parser is None else self._input_parser.schema,
            strict=True,
        )

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Run the agent on the request; its errors are returned to the calling model."""
        message = self._parse_message(arguments)
        if isinstance(message, ToolResult):
            return message
        inner, prefix = self._start(ctx, message), f"{ctx._scope}/"
        if not self._stream_events:
            ctx._run.log.mute(prefix)
        try:
            outcome = await inner.work
        except Exception as error:
            # If only its own limits are exceeded, the caller can continue.
            if ends_run(error) and not (isinstance(error, LimitError) and error.share is inner.meter):
                raise
            _logger.warning("`%s`, called as a tool by `%s`, failed", self.agent.name, ctx.agent, exc_info=True)
            return ToolResult(f"[{self.agent.name}] failed: {type(error).__name__}: {error}", is_error=True)
        finally:
            if not self._stream_events:
                ctx._run.log.unmute(prefix)
            # Recorded with the call as a whole: a replay reads its result only.
            changes = inner.values.changes()
            if changes is not None:
                ctx.values._apply(changes)
        if self._output_extractor is None and outcome.output is not None:
            return to_tool_result(outcome.output, self.spec.name)
        return await self._to_result(outcome, [entry.message for entry in inner.history.entries[inner.start :]])

    def check_arguments(self, arguments: str) -> dict[str, Any] | ToolResult:
        """Return the parsed arguments, or an error result."""
        message = self._parse_message(arguments)
        return message if isinstance(message, ToolResult) else msgspec.json.decode(arguments)

    def _start(self, ctx: RunContext[Any], message: str) -> _InnerRun:
        caller = ctx._caller
        if not isinstance(caller, AgentContext):
            raise SetupError(f"`{self.agent.name}.as_tool()` can only be called by an agent's model")
        history = History() if self._history == "none" else caller._history.fork()
        history.entries.append(HistoryEntry(UserMessage(message)))
        history.inputs = len(history.entries)
        meter = ctx._run.meter if self._limits is None else UsageMeter(self._limits, ctx._run.meter)
        values = TrackedValues(ctx._run.values)
        # Not AgentContext.run_agent: that would log it under the caller's activation instead of under this call.
        work = cast("AgentContext[Any]", caller)._flow.run_agent(
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

    def _parse_message(self, arguments: str) -> str | ToolResult:
        try:
            if self._input_parser is None:
                return _parse_request(arguments).request
            return msgspec.json.encode(self._input_parser.dump(self._input_parser.parse(arguments))).decode()
        except (ValueError, msgspec.MsgspecError) as error:
            return ToolResult(f"The arguments of `{self.spec.name}` do not fit: {error}.", is_error=True)

    async def _to_result(self, outcome: FlowOutcome, messages: Sequence[Message]) -> ToolResult:
        if self._output_extractor is not None:
            report = AgentToolResult(outcome.output, tuple(messages), outcome.origin.agent)
            return to_tool_result(await maybe_await(self._output_extractor(report)), self.spec.name)
        text = next((text for text in map(_get_text, reversed(messages)) if text), None)
        return to_tool_result(text, self.spec.name)

    def __repr__(self) -> str:
        return f"AgentTool({self.agent.name!r})"


def _get_text(message: Message) -> str:
    return text_of(message.content) if isinstance(message, AssistantMessage | ToolMessage) else ""


def agent_tool(
    agent: BaseAgent[Any, Any],
    *,
    name: str | None = None,
    description: str | None = None,
    input_type: Any = None,
    history: HistoryPolicy = "none",
    output_extractor: Callable[[AgentToolResult[Any]], Any] | None = None,
    stream_events: bool = True,
    limits: Limits | None = None,
    needs_approval: NeedsApproval = False,
) -> Tool:
    """Make a tool of an agent; see `BaseAgent.as_tool`."""
    if output_extractor is not None and not callable(output_extractor):
        raise SetupError(
            f"output_extractor of {agent.name}.as_tool() is {output_extractor!r}; give a function of AgentToolResult"
        )
    if limits is not None and not isinstance(limits, Limits):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SetupError(f"limits of {agent.name}.as_tool() is {limits!r}; give Limits(…)")
    if not callable(history):
        check_choice(f"history of {agent.name}.as_tool()", history, _HISTORY_POLICIES)
    tool = AgentTool(
        agent,
        name=name,
        description=description,
        input_type=input_type,
        history=history,
        output_extractor=output_extractor,
        stream_events=stream_events,
        limits=limits,
    )
    return tool if needs_approval is False else ApprovalTool(tool, needs_approval)
