"""An agent as a tool: the caller stays active, and the agent's answer is the result of the call."""

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic

import msgspec
from msgspec import Struct
from typing_extensions import TypeVar

from .._checks import check_choice
from .._wording import error_text, show
from ..context import Limits, RunContext
from ..context.run_state import UsageMeter, ends_run
from ..context.values import TrackedValues
from ..errors import LimitError, SetupError
from ..handoffs import tool_name_for
from ..handoffs.input_type import HandoffInputParser
from ..log import CancelTask, Finish, keys
from ..log.history import History
from ..messages import AssistantMessage, Message, ToolMessage, ToolSpec, UserMessage, answer_of, object_schema
from ..tools import ToolCondition, ToolResult
from ..tools.base_tool import check_condition
from ..tools.results import to_tool_result
from .agent_context import HISTORY_POLICIES, AgentContext, FlowOutcome, HistoryPolicy, compile_history
from .hooks import maybe_await, run_with_deadline

_logger = logging.getLogger("baton.agents")

_REQUEST_SCHEMA = object_schema(
    {"request": {"type": "string", "description": "What the agent should do, with all it needs to know."}}
)
Result = TypeVar("Result", default=Any, covariant=True)


class _RequestArguments(Struct):
    request: str


_parse_request = msgspec.json.Decoder(_RequestArguments).decode


class AgentToolResult(Struct, Generic[Result], frozen=True):
    """The result of an agent that was called as a tool."""

    output: Result
    """The agent's output."""
    messages: tuple[Message, ...]
    """The messages of the call."""
    agent: str
    """The name of the agent that finished."""


class _InnerRun(Struct, frozen=True, gc=False):
    """One running call. Its messages begin at `start` in its history."""

    work: Coroutine[Any, Any, FlowOutcome]
    history: History
    start: int
    values: TrackedValues
    meter: UsageMeter


class AgentTool(Struct, dict=True, eq=False):
    """A tool that runs an agent with its own history; its events are logged under the call."""

    agent: Any
    """The `BaseAgent` to run."""
    name: str | None
    description: str | None
    input_type: Any
    history: HistoryPolicy
    output_extractor: Callable[[AgentToolResult[Any]], Any] | None
    stream_events: bool
    limits: Limits | None
    is_enabled: ToolCondition = True

    def __post_init__(self) -> None:
        owner = f"{self.agent.name}.as_tool()"
        check_condition(owner, self.is_enabled)
        if self.output_extractor is not None and not callable(self.output_extractor):
            given = f"{show(self.output_extractor)}; give a function of AgentToolResult"
            raise SetupError(f"output_extractor of {owner} is {given}")
        if self.limits is not None and not isinstance(self.limits, Limits):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SetupError(f"limits of {owner} is {show(self.limits)}; give Limits(…)")
        if not callable(self.history):
            check_choice(f"history of {owner}", self.history, HISTORY_POLICIES)
        self._projection = None if self.history == "none" else compile_history(self.history)
        self._input_parser: HandoffInputParser | None = None
        schema = _REQUEST_SCHEMA
        if self.input_type is not None:
            what = f"the input_type of `{self.agent.name}` as a tool"
            self._input_parser = HandoffInputParser(self.agent.name, self.input_type, what=what)
            schema = self._input_parser.schema
        description = self.agent.description if self.description is None else self.description
        self.spec = ToolSpec(self.name or tool_name_for(self.agent.name), description, schema, strict=True)

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Run the agent on the request; its errors are returned to the calling model."""
        message = self._parse_message(arguments)
        if isinstance(message, ToolResult):
            return message
        inner = self._start(ctx, message)
        prefix = keys.flow_in_call(ctx._scope)
        if not self.stream_events:
            ctx._run.log.mute(prefix)
        try:
            outcome = await inner.work
        except Exception as error:
            # If only its own limits are exceeded, the caller can continue.
            if ends_run(error) and not (isinstance(error, LimitError) and error.share is inner.meter):
                raise
            _logger.warning("`%s`, called as a tool by `%s`, failed", self.agent.name, ctx.agent, exc_info=True)
            ctx._run.forget_open_calls(ctx._scope)
            return ToolResult(f"[{self.agent.name}] failed: {type(error).__name__}: {error_text(error)}", is_error=True)
        finally:
            if not self.stream_events:
                ctx._run.log.unmute(prefix)
            # Recorded with the call as a whole: a replay reads its result only.
            changes = inner.values.changes()
            if changes is not None:
                ctx.values._apply(changes)
        if isinstance(outcome.action, Finish | CancelTask):
            name = self.agent.name
            raise SetupError(f"`{name}` returned {outcome.action!r} inside a tool call, where no task is open")
        if self.output_extractor is None and outcome.output is not None:
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
        around = caller._history
        request = UserMessage(message)
        history = around.begin(request) if self._projection is None else around.fork(request)
        meter = ctx._run.meter if self.limits is None else UsageMeter(self.limits, ctx._run.meter)
        values = TrackedValues(ctx._run.values)
        # Not AgentContext.run_agent: that would log it under the caller's activation instead of under this call.
        work = caller._flow.run_agent(
            self.agent,
            run=ctx._run.part(values=values, meter=meter),
            history=history,
            prefix=keys.flow_in_call(ctx._scope),
            after=ctx._origin,
            projection=self._projection,
        )
        if self.limits is not None and (seconds := self.limits.seconds) is not None:
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
        if self.output_extractor is not None:
            report = AgentToolResult(outcome.output, tuple(messages), outcome.origin.agent)
            return to_tool_result(await maybe_await(self.output_extractor(report)), self.spec.name)
        text = next((text for text in map(_get_text, reversed(messages)) if text), None)
        return to_tool_result(text, self.spec.name)

    def __repr__(self) -> str:
        return f"AgentTool({self.agent.name!r})"


def _get_text(message: Message) -> str:
    return answer_of(message.content) if isinstance(message, AssistantMessage | ToolMessage) else ""
