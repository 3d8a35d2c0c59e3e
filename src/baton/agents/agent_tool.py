"""An agent as a tool of another: the caller keeps the floor, and the agent's answer is the result of the call."""

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from ..context import Entry, History, Limits, Meter, RunContext, WatchedValues
from ..errors import LimitError, SetupError, checked_choice, ends_the_run
from ..handoffs import InputReader, tool_name_for
from ..messages import AssistantMessage, Message, ToolMessage, ToolSpec, UserMessage, text_of
from ..tools import Approved, NeedsApproval, Tool, ToolOutcome, outcome_of
from .base import AgentContext, BaseAgent, Outcome, Projection
from .deadlines import in_time
from .together import settled

_logger = logging.getLogger("baton.agents")

Extractor: TypeAlias = Callable[["AgentReport"], Any]

_REQUEST_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "request": {"type": "string", "description": "What the agent should do, with all it needs to know."}
    },
    "required": ["request"],
    "additionalProperties": False,
}
_PROJECTIONS = ("none", "rewritten", "verbatim", "lineage", "answers")


class _Request(Struct):
    request: str


_read_request = msgspec.json.Decoder(_Request).decode


class _Visit(Struct, frozen=True, gc=False):
    """One call under way. What is said in it begins at `mark` in its history."""

    work: Coroutine[Any, Any, Outcome]
    history: History
    mark: int
    values: WatchedValues
    meter: Meter


class AgentReport(Struct, frozen=True):
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
        history: Projection,
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
        self._reader = None if input_type is None else InputReader(agent.name, input_type, what=what)
        self.spec = ToolSpec(
            name or tool_name_for(agent.name),
            agent.description if description is None else description,
            _REQUEST_SCHEMA if self._reader is None else self._reader.schema,
            is_strict=True,
        )

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolOutcome:
        """Let the agent work on the request. What ends it early is told to the caller's model."""
        told = self._message(arguments)
        if isinstance(told, ToolOutcome):
            return told
        visit, prefix = self._visit(ctx, told), f"{ctx.scope}/"
        if self._is_silent:
            ctx.run.log.hush(prefix)
        try:
            outcome = await visit.work
        except Exception as error:
            # If a share of its own is used up, the caller can go on.
            if ends_the_run(error) and not (isinstance(error, LimitError) and error.share is visit.meter):
                raise
            _logger.warning("`%s`, called as a tool by `%s`, failed", self.agent.name, ctx.agent, exc_info=True)
            return ToolOutcome(f"[{self.agent.name}] failed: {type(error).__name__}: {error}", is_error=True)
        finally:
            if self._is_silent:
                ctx.run.log.unhush(prefix)
            # Recorded with the call as a whole: a replay takes its result and does not go inside.
            changes = visit.values.changes()
            if changes is not None:
                ctx.values.apply(changes)
        if self._output is None and outcome.output is not None:
            return outcome_of(outcome.output, self.spec.name)
        return await self._result(outcome, [entry.message for entry in visit.history.entries[visit.mark :]])

    def checked(self, arguments: str) -> dict[str, Any] | ToolOutcome:
        """The arguments, if they fit; else an outcome that tells the model what does not."""
        told = self._message(arguments)
        return told if isinstance(told, ToolOutcome) else msgspec.json.decode(arguments)

    def _visit(self, ctx: RunContext[Any], told: str) -> "_Visit":
        caller = ctx.caller
        if not isinstance(caller, AgentContext):
            raise SetupError(f"the agent `{self.agent.name}` can be called as a tool only by another agent's model")
        history = History() if self._history == "none" else caller.history.fork()
        history.entries.append(Entry(UserMessage(told)))
        history.inputs = len(history.entries)
        meter = ctx.run.meter if self._limits is None else Meter(self._limits, ctx.run.meter)
        values = WatchedValues(ctx.run.values)
        # Not AgentContext.inside: that would put it under the caller's activation instead of under this call.
        work = cast("AgentContext[Any]", caller).flow.inside(
            self.agent,
            run=ctx.run.part(values=values, meter=meter),
            history=history,
            prefix=f"{ctx.scope}/",
            after=ctx.origin,
            projection=None if self._history == "none" else cast("Projection", self._history),
        )
        if self._limits is not None and (seconds := self._limits.seconds) is not None:
            work = in_time(work, seconds, lambda: LimitError("seconds", seconds, ctx.path, share=meter))
        return _Visit(work, history, history.inputs, values, meter)

    def _message(self, arguments: str) -> str | ToolOutcome:
        """What the agent is told; or an outcome that says what is wrong with the arguments."""
        try:
            if self._reader is None:
                return _read_request(arguments).request
            return msgspec.json.encode(self._reader.dump(self._reader.read(arguments))).decode()
        except (ValueError, msgspec.MsgspecError) as error:
            return ToolOutcome(f"The arguments of `{self.spec.name}` do not fit: {error}.", is_error=True)

    async def _result(self, outcome: Outcome, messages: Sequence[Message]) -> ToolOutcome:
        if self._output is not None:
            report = AgentReport(outcome.output, tuple(messages), outcome.origin.agent)
            return outcome_of(await settled(self._output(report)), self.spec.name)
        said = next((text for text in map(_text_in, reversed(messages)) if text), None)
        return outcome_of(said, self.spec.name)

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
    history: Projection = "none",
    output: Extractor | None = None,
    events: Literal["forward", "silent"] = "forward",
    limits: Limits | None = None,
    needs_approval: NeedsApproval = False,
) -> Tool:
    """An agent as a tool, see `BaseAgent.as_tool`."""
    checked_choice(f"events of {agent.name}.as_tool()", events, ("forward", "silent"))
    if output is not None and not callable(output):
        raise SetupError(f"output of {agent.name}.as_tool() is {output!r}; give a function of the AgentReport")
    if limits is not None and not isinstance(limits, Limits):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SetupError(f"limits of {agent.name}.as_tool() is {limits!r}; give Limits(…)")
    if not callable(history):
        checked_choice(f"history of {agent.name}.as_tool()", history, _PROJECTIONS)
    made = AgentTool(
        agent,
        name=name,
        description=description,
        input_type=input_type,
        history=history,
        output=output,
        is_silent=events == "silent",
        limits=limits,
    )
    return made if needs_approval is False else Approved(made, needs_approval)
