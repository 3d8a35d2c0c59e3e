"""The result of a run, and functions that summarise its events."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, Literal, TypeAlias, is_typeddict, overload

import msgspec
from msgspec import UNSET
from typing_extensions import TypeVar

from .._wording import type_of
from ..context.run_state import RunState
from ..errors import RunError
from ..log import AgentResponded, Event, HistoryCompacted, OpenTask, RunCompleted, StepCompleted
from ..log.events import Interrupt as Interrupt
from ..log.events import to_interrupt as to_interrupt
from ..log.history import History
from ..messages import Message, Usage, answer_of
from ..models import to_anthropic, to_openai, to_responses
from ..team.tasks import open_tasks
from ..tools import GuardrailVerdict
from ..tools.tool_guardrails import parse_verdict

Out = TypeVar("Out", default=str, covariant=True)
T = TypeVar("T")

RUN_LOGGER = logging.getLogger("baton.runs")
"""Logs one line for each run that stops."""
_MAX_CAUSES = 4

StoppedStatus: TypeAlias = Literal["completed", "suspended", "failed", "cancelled"]
"""The status of a run that has stopped."""


class RunUsage(msgspec.Struct, frozen=True):
    """Model usage of a run."""

    total: Usage
    """Usage of all model calls together."""
    by_agent: Mapping[str, Usage]
    """Usage by agent name."""
    by_model: Mapping[str, Usage]
    """Usage by model name."""
    by_edge: Mapping[tuple[str, str], Usage] = {}
    """Usage by edge: the agent that control came from, "" for the first agent of the run, and the agent."""


class GuardrailResult(msgspec.Struct, frozen=True):
    """The verdict of one guardrail."""

    name: str
    """The guardrail's name."""
    stage: Literal["input", "output", "tool"]
    """The stage of the run that it checked."""
    agent: str
    """The agent whose input, output or tool call it checked."""
    verdict: GuardrailVerdict
    """Its verdict."""


class RunResult(Generic[Out]):
    """The state of a run when it stopped."""

    def __init__(
        self,
        run: RunState[Any],
        history: History,
        *,
        status: StoppedStatus,
        output: Out,
        agent: str,
        error: BaseException | None,
    ) -> None:
        self._run = run
        self._history = history
        self._output = output
        self.status: StoppedStatus = status
        """Why the run stopped: `completed`, `suspended`, `failed` or `cancelled`."""
        self.agent = agent
        """The name of the agent that holds control: the one that was active last, or the target of the last handoff."""
        self.error = error
        """The exception of a failed run, else None."""

    @property
    def output(self) -> Out:
        """The last answer given; None if no agent gave one.

        Raises:
            RunError: The run has not completed; the message says what is open and how to resume.
        """
        if self.status != "completed":
            raise RunError(self._describe_incomplete()) from self.error
        return self._output

    @overload
    def output_as(self, type_: type[T]) -> T: ...
    @overload
    def output_as(self, type_: Any) -> Any: ...
    def output_as(self, type_: Any) -> Any:
        """Return the output after checking its type, for teams in which several agents may answer.

        Args:
            type_: A class, or any type that pydantic can validate, such as `list[int]` or `int | str`.

        Returns:
            The output.

        Raises:
            RunError: The run has not completed, or its output has another type.
        """
        output: Any = self.output
        if isinstance(type_, type) and not is_typeddict(type_):
            if isinstance(output, type_):
                return output
            problem = f"is {type_of(output)}"
        else:
            from pydantic import TypeAdapter, ValidationError

            try:
                return TypeAdapter(type_).validate_python(output, strict=True)
            except ValidationError as error:
                problem = f"does not match: {error.errors()[0]['msg']}"
        wanted = type_.__name__ if isinstance(type_, type) else type_
        raise RunError(f"output_as({wanted}): the output of agent `{self.agent}` in run `{self.run_id}` {problem}")

    @property
    def run_id(self) -> str:
        """The id of the run; pass it to `runner.resume`."""
        return self._run.id

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """All events of the run."""
        return tuple(self._run.log.events)

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """All messages of this run, without those of earlier runs of its thread."""
        return tuple([entry.message for entry in self._history.passed_entries()[self._history.offset :]])

    def to_openai(self) -> list[dict[str, Any]]:
        """Return the messages as dicts for OpenAI's Chat Completions.

        See `batonkit.models.to_openai`.

        Raises:
            ModelRequestError: The format has no place for a part, such as a file by URL.
        """
        return to_openai(self.messages)

    def to_responses(self) -> list[dict[str, Any]]:
        """Return the messages as items of OpenAI's Responses API.

        See `batonkit.models.to_responses`.

        Raises:
            ModelRequestError: The format has no place for a part, such as audio.
        """
        return to_responses(self.messages)

    def to_anthropic(self) -> list[dict[str, Any]]:
        """Return the messages as turns of Anthropic's Messages API.

        See `batonkit.models.to_anthropic`.

        Raises:
            ModelRequestError: The format has no place for a part, such as audio without a transcript.
        """
        return to_anthropic(self.messages)

    @property
    def values(self) -> dict[str, Any]:
        """A copy of the run's values."""
        return msgspec.to_builtins(dict(self._run.values))

    @cached_property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """The open interrupts."""
        return tuple(to_interrupt(raised) for raised in self._run.log.open_interrupts().values())

    @cached_property
    def open_tasks(self) -> tuple[OpenTask, ...]:
        """The tasks that agents were handed and have not ended, the innermost last.

        The next message of the thread goes to the agent of the last one.
        """
        return open_tasks(self.events)

    @cached_property
    def usage(self) -> RunUsage:
        """Model usage of the run."""
        return usage_from_events(self.events)

    @cached_property
    def guardrail_results(self) -> tuple[GuardrailResult, ...]:
        """The verdicts of all guardrails, in order."""
        return guardrail_results(self.events)

    def __repr__(self) -> str:
        output = f"output={self._output!r}, " if self.status == "completed" else ""
        return f"RunResult({self.status}, agent={self.agent!r}, {output}run_id={self.run_id!r})"

    def _repr_html_(self) -> str:
        """Return the display in notebooks."""
        from .result_html import ShownResult, result_to_html

        shown = ShownResult(
            run_id=self.run_id,
            status=self.status,
            output=self._output,
            error=self.error,
            interrupts=self.interrupts,
            events=self.events,
            usage=self.usage.total,
        )
        return result_to_html(shown)

    def _describe_incomplete(self) -> str:
        answers = ""
        if self.status == "suspended":
            state = "is suspended"
            answers = ", answers"
        elif self.status == "failed":
            state = "failed" if self.error is None else f"failed with {type(self.error).__name__}: {self.error}"
        else:
            state = "was cancelled"
        waiting = ", ".join(f"`{each.id}` (agent `{each.agent}`)" for each in self.interrupts)
        open_interrupts = f"; open interrupts: {waiting}" if waiting else ""
        resume = f"await runner.resume({self.run_id!r}{answers})"
        return f"run `{self.run_id}` {state} and has no output{open_interrupts}; to resume it: {resume}"


def log_run_end(run: RunState[Any], status: str, past_events: int, error: BaseException | None) -> None:
    """Log one line on a run that stopped: status, duration, tokens, cost and cause.

    There is no content in it: messages of exceptions may quote models and users, and are logged at DEBUG only.
    """
    events = run.log.events[past_events:]
    meter = run.meter
    if not events:
        # A replay.
        return
    cost = f"${meter.cost:.4g}" if meter.cost or not meter.unpriced_calls else "cost unknown"
    if meter.cost and meter.unpriced_calls:
        cost += f" and {meter.unpriced_calls} calls of unknown cost"
    causes: list[str] = []
    cause = error
    while cause is not None and len(causes) < _MAX_CAUSES:
        causes.append(type(cause).__name__)
        cause = cause.__cause__
    seconds = events[-1].timestamp - events[0].timestamp
    reason = " from ".join(causes)
    text = "run `%s` %s after %.3f s: %d tokens, %s%s"
    RUN_LOGGER.info(text, run.id, status, seconds, meter.tokens, cost, f"; {reason}" if reason else "")
    if error is not None:
        RUN_LOGGER.debug("run `%s` failed", run.id, exc_info=error)


def total_usage(events: Iterable[Event]) -> Usage:
    """Add up the usage of the model calls in a log, without the parts of `usage_from_events`."""
    total = Usage()
    for event in events:
        if isinstance(event, AgentResponded | HistoryCompacted) and event.model:
            total += usage_of(event)
    return total


def usage_of(event: AgentResponded | HistoryCompacted) -> Usage:
    """Return the usage of all model calls that a response or a summary took."""
    usage = event.usage or Usage()
    if isinstance(event, HistoryCompacted):
        return usage
    return msgspec.structs.replace(usage, model_calls=event.model_calls + event.failed_calls)


def output_from_events(events: Sequence[Event]) -> Any:
    """Return the output of a run as JSON data; None if it has not completed, or has no output.

    Args:
        events: The log of the run.
    """
    completed = next((event for event in reversed(events) if isinstance(event, RunCompleted)), None)
    if completed is None:
        return None
    if completed.output is not UNSET:
        return completed.output
    # A log from before outputs were recorded has neither.
    said = [event for event in events if event.key in completed.said and isinstance(event, AgentResponded)]
    return answer_of(said[0].message.content) if said else None


def usage_from_events(events: Iterable[Event], before: RunUsage | None = None) -> RunUsage:
    """Add up the usage of the model calls in a log.

    Args:
        events: The events of one or several runs.
        before: The usage of the events before these.

    Returns:
        The usage in total, by agent, by model and by edge.
    """
    before = before or RunUsage(Usage(), {}, {})
    total = before.total
    by_agent = {**before.by_agent}
    by_model = {**before.by_model}
    by_edge = {**before.by_edge}
    for event in events:
        if isinstance(event, AgentResponded | HistoryCompacted) and event.model:
            usage = usage_of(event)
            total += usage
            by_agent[event.agent] = by_agent.get(event.agent, Usage()) + usage
            by_model[event.model] = by_model.get(event.model, Usage()) + usage
            edge = (event.origin.parent.agent if event.origin.parent is not None else "", event.agent)
            by_edge[edge] = by_edge.get(edge, Usage()) + usage
    return RunUsage(total, by_agent, by_model, by_edge)


def guardrail_results(events: Iterable[Event]) -> tuple[GuardrailResult, ...]:
    """Collect the guardrail verdicts in a log.

    Args:
        events: The events of one or several runs.

    Returns:
        The verdicts, in order.
    """
    results: list[GuardrailResult] = []
    for event in events:
        verdict = parse_verdict(event) if isinstance(event, StepCompleted) else None
        if verdict is not None:
            stage, name, given = verdict
            results.append(GuardrailResult(name, stage, event.agent, given))
    return tuple(results)
