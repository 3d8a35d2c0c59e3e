"""The context of one activation of an agent, and the flow of control that it is part of."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, cast, get_args

from msgspec import Struct
from typing_extensions import TypeVar

from ..context import HistoryEntry, RunContext
from ..context.history import History, HistoryView
from ..context.run_state import RunState
from ..context.values import to_json_value
from ..errors import SetupError, nearest
from ..events import Action, AgentResponded, Origin, TextDelta
from ..handoffs import HandoffTarget
from ..handoffs.routes import Routes
from ..messages import AssistantMessage, Content, Message, is_empty, text_of
from ..models import Model, ModelSettings
from ..wording import show
from .hooks import HookDispatcher, RunHooks

Ctx = TypeVar("Ctx", default=Any, covariant=True)

_PolicyName: TypeAlias = Literal["rewritten", "verbatim", "lineage", "answers", "none"]
HISTORY_POLICIES: tuple[str, ...] = get_args(_PolicyName)
"""The names of the history policies."""
HistoryPolicy: TypeAlias = _PolicyName | Callable[[Sequence[HistoryEntry]], Sequence[Message]]
"""The way an agent reads the messages of agents that were active before it."""


def check_history_policy(policy: Any) -> HistoryPolicy:
    """Return a history policy unchanged if it is valid.

    Args:
        policy: The name of a policy, or a function of entries.

    Raises:
        SetupError: There is no such policy.
    """
    if callable(policy) or (isinstance(policy, str) and policy in HISTORY_POLICIES):
        return cast("HistoryPolicy", policy)
    known = f"use one of {', '.join(HISTORY_POLICIES)}, or a function of entries"
    raise SetupError(f"there is no history {show(policy)}; {known}{nearest(policy, HISTORY_POLICIES)}")


MultipleTransfers: TypeAlias = Literal["first", "last", "error"]
"""Which of several transfers in one response is followed."""


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Settings of the runner for all agents of a run."""

    model: Model | None = None
    model_settings: ModelSettings | None = None
    multiple_transfers: MultipleTransfers = "first"
    max_corrections: int = 2
    hooks: RunHooks | None = None
    compiled_agents: dict[str, Any] = field(default_factory=dict[str, Any])
    """Compiled agents by name, shared by all their activations."""


class FlowOutcome(Struct, frozen=True):
    """The end of a flow of control."""

    action: Action | None
    """The last agent's action."""
    origin: Origin
    """The last agent's activation."""
    output: Any
    """The last answer: the last agent's output or, if it has none, that of an agent before it."""
    first: Origin
    """The first agent's activation."""


class Flow(Protocol):
    """The flow of control that an activation is part of."""

    def run_agent(
        self,
        agent: HandoffTarget,
        *,
        run: RunState[Any],
        history: History,
        prefix: str,
        after: Origin,
        projection: HistoryPolicy | None,
    ) -> Coroutine[Any, Any, FlowOutcome]:
        """Run an agent inside another; keys begin with `prefix`, paths continue from `after`."""
        ...


class AgentContext(RunContext[Ctx]):
    """The context of one activation of an agent: a `RunContext` with the conversation."""

    __slots__ = (
        "_breaks_loop",
        "_flow",
        "_history",
        "_hooks",
        "_options",
        "_routes",
        "_said",
        "_turn_start",
        "_view",
        "output",
    )
    # An activation is not a tool call; class attributes cost nothing per transfer.
    tool_call: ClassVar[None] = None
    _caller: ClassVar[None] = None

    def __init__(
        self,
        run: RunState[Ctx],
        origin: Origin,
        history: History,
        view: HistoryView,
        routes: Routes,
        options: RunConfig,
        turn_start: int,
        flow: Flow,
    ) -> None:
        # Written out instead of super().__init__: this runs once for every transfer.
        self._run = run
        self._origin = origin
        self._scope = origin.id
        self._values = None
        self._steps = None
        self._asked = 0
        self._history = history
        self._routes = routes
        self._options = options
        self.output: Any = None
        """The output of this activation; by default the text it said last."""
        self._view = view
        self._turn_start = turn_start
        """The position in the history where the current turn begins."""
        self._flow = flow
        self._breaks_loop = False
        """True if a tool has asked to end the loop around this agent."""
        self._hooks: HookDispatcher | None = None
        self._said = 0

    def messages(self) -> Sequence[Message]:
        """Return the conversation so far, as this agent reads it."""
        return self._view.messages()

    def run_agent(
        self,
        agent: HandoffTarget,
        key: str,
        *,
        history: History | None = None,
        _run: RunState[Any] | None = None,
        _after: Origin | None = None,
    ) -> Coroutine[Any, Any, FlowOutcome]:
        """Run one of this agent's `inner_agents()`, and the agents it transfers to.

        Args:
            agent: The agent to run.
            key: Identifies this step; unique in this activation and the same on every replay.
            history: The history to continue; by default this agent's own.
        """
        return self._flow.run_agent(
            agent,
            run=_run or self._run,
            history=history or self._history,
            prefix=f"{self._scope}/{key}/",
            after=_after or self._origin,
            projection=None,
        )

    async def stream_text(self, text: str) -> None:
        """Stream a piece of text to subscribers. It is not recorded; `say` records the whole text.

        Args:
            text: The piece of text.
        """
        log = self._run.log
        if log.sink is not None and not log.has(f"{self._scope}/say{self._said + 1}"):
            log.deliver(TextDelta(self._origin, text))
            await log.settle()

    async def say(self, content: Content) -> None:
        """Add a message of this agent to the conversation; a replay does not repeat it.

        Args:
            content: Text or message parts.
        """
        self._said += 1
        key = f"{self._scope}/say{self._said}"
        log = self._run.log
        said = log.find(key, AgentResponded)
        if said is None:
            if not isinstance(content, str):
                to_json_value(f"the message of `{self.agent}`", content)
            log.announce(key, AgentResponded)
            said = AgentResponded(
                key, self._origin, time(), AssistantMessage(content), value_changes=self._take_changes()
            )
            log.write(said)
            await log.settle()
        else:
            self._apply_changes(said.value_changes)
        if not is_empty(said.message):
            self._history.add(said.message, self._origin, is_answer=True)
        self.output = text_of(said.message.content)
