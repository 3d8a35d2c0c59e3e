"""What a run came to, and readings of its log."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Generic, Literal, TypeAlias

import msgspec
from typing_extensions import TypeVar

from ..context.history import History
from ..context.run_state import RunState
from ..events import AgentResponded, Event, InterruptRaised, StepCompleted
from ..messages import Message, ToolCall, Usage
from ..tools import GuardrailVerdict
from ..tools.guardrails import parse_verdict

Out = TypeVar("Out", default=str, covariant=True)

StoppedStatus: TypeAlias = Literal["completed", "suspended", "failed", "cancelled"]


class Interrupt(msgspec.Struct, frozen=True):
    """An open question: who asks, where, what, and about which call if it is about one."""

    id: str
    agent: str
    path: tuple[str, ...]
    payload: Any = None
    tool_call: ToolCall | None = None
    schema: dict[str, Any] | None = None
    """The JSON schema that an answer must fit, if there is one."""


class RunUsage(msgspec.Struct, frozen=True):
    """What a run consumed: in all, by agent and by model."""

    total: Usage
    by_agent: Mapping[str, Usage]
    by_model: Mapping[str, Usage]


class GuardrailResult(msgspec.Struct, frozen=True):
    """What one guardrail said: about the input, the output or a tool call of which agent."""

    name: str
    stage: Literal["input", "output", "tool"]
    agent: str
    verdict: GuardrailVerdict


class RunResult(Generic[Out]):
    """Where a run stands when it stops."""

    def __init__(
        self,
        run: RunState[Any],
        history: History,
        *,
        status: StoppedStatus,
        output: Out,
        agent: str,
        error: BaseException | None,
        said_before: int = 0,
    ) -> None:
        self._run = run
        self._history = history
        self._said_before = said_before
        self.status: StoppedStatus = status
        self.output: Out = output
        """The answer of the agent that had the floor last; None if the run is not completed."""
        self.agent = agent
        """The name of the agent that had the floor last."""
        self.error = error

    @property
    def run_id(self) -> str:
        """The id of the run, by which it can be resumed."""
        return self._run.id

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """The log."""
        return tuple(self._run.log.events)

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """All that was said in this run, as it was said."""
        return tuple([entry.message for entry in self._history.entries[self._said_before :]])

    @property
    def values(self) -> dict[str, Any]:
        """The run's values as they are now."""
        return dict(self._run.values)

    @cached_property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """Every open question."""
        return tuple(to_interrupt(asked) for asked in self._run.log.open_questions().values())

    @cached_property
    def usage(self) -> RunUsage:
        """What the run consumed."""
        return usage_from_events(self.events)

    @cached_property
    def guardrail_results(self) -> tuple[GuardrailResult, ...]:
        """What guardrails said, in the order in which they said it."""
        return guardrail_results(self.events)

    def __repr__(self) -> str:
        return f"RunResult({self.status}, agent={self.agent!r}, output={self.output!r}, run_id={self.run_id!r})"


def to_interrupt(asked: InterruptRaised) -> Interrupt:
    """A question as those see it who are to answer it."""
    return Interrupt(asked.key, asked.agent, asked.path, asked.payload, asked.tool_call, asked.schema)


def usage_from_events(events: Iterable[Event]) -> RunUsage:
    """Add up what the model calls in a log consumed."""
    total = Usage()
    by_agent: dict[str, Usage] = {}
    by_model: dict[str, Usage] = {}
    for event in events:
        if isinstance(event, AgentResponded) and event.model:
            spent = msgspec.structs.replace(event.usage or Usage(), model_calls=1)
            total += spent
            by_agent[event.agent] = by_agent.get(event.agent, Usage()) + spent
            by_model[event.model] = by_model.get(event.model, Usage()) + spent
    return RunUsage(total, by_agent, by_model)


def guardrail_results(events: Iterable[Event]) -> tuple[GuardrailResult, ...]:
    """The verdicts that a log has."""
    results: list[GuardrailResult] = []
    for event in events:
        said = parse_verdict(event) if isinstance(event, StepCompleted) else None
        if said is not None:
            stage, name, verdict = said
            results.append(GuardrailResult(name, stage, event.agent, verdict))
    return tuple(results)
