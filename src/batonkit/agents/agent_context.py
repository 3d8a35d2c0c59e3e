"""The context of one activation of an agent, and the flow of control that it is part of."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from inspect import signature
from time import time
from typing import Any, Literal, Protocol, TypeAlias, get_args

from msgspec import Struct
from typing_extensions import TypeVar

from .._wording import show
from ..context import RunContext
from ..context.deferred_calls import must_be_awaited
from ..context.run_state import RunState
from ..context.values import to_json_value
from ..errors import SetupError, nearest
from ..handoffs import HandoffTarget
from ..handoffs.routes import Routes
from ..handoffs.tasks import TaskTools
from ..log import Action, AgentResponded, Exit, Origin, RequestRecord, TextDelta, keys
from ..log.entries import HistoryEntry
from ..log.history import History
from ..log.view import HistoryView
from ..messages import AssistantMessage, Content, Message, text_of
from ..messages.valid_text import valid_text, with_valid_text
from ..models import Model, ModelRequest, ModelSettings, Prices
from .compaction import Compaction
from .hooks import HookDispatcher, RunHooks
from .seam import AgentCalls
from .tracing import RunTrace

Ctx = TypeVar("Ctx", default=Any, covariant=True)

_PolicyName: TypeAlias = Literal["rewritten", "verbatim", "lineage", "answers", "none"]
HISTORY_POLICIES: tuple[str, ...] = get_args(_PolicyName)
"""The names of the history policies."""
_Selected: TypeAlias = Sequence[Message | Mapping[str, Any]] | Sequence[Message]
_HistoryFunction: TypeAlias = (
    Callable[[Sequence[HistoryEntry]], _Selected | Awaitable[_Selected]]
    | Callable[[RunContext[Any], Sequence[HistoryEntry]], _Selected | Awaitable[_Selected]]
)
HistoryPolicy: TypeAlias = _PolicyName | _HistoryFunction
"""The way an agent reads the messages of agents that were active before it: a name, or a function.

A function takes `(entries)` or `(ctx, entries)` and returns messages; it may be async. It is called once per
activation: its choice is recorded, and a resumed run reads what was chosen.
"""


class HistoryFunction(Struct, frozen=True):
    """A history policy that is a function, with its number of arguments."""

    function: Callable[..., Any]
    """The function."""
    takes_context: bool
    """True if it takes `(ctx, entries)`, False if it takes `(entries)`."""

    @property
    def name(self) -> str:
        """The name of the function, for messages."""
        return getattr(self.function, "__name__", type(self.function).__name__)


def compile_history(policy: Any) -> str | HistoryFunction:
    """Return the name of a history policy, or its function with the number of arguments.

    Raises:
        SetupError: There is no such policy, or the function takes other arguments.
    """
    if isinstance(policy, HistoryFunction):
        return policy
    if isinstance(policy, str) and policy in HISTORY_POLICIES:
        return HISTORY_POLICIES[HISTORY_POLICIES.index(policy)]
    if not callable(policy):
        known = f"use one of {', '.join(HISTORY_POLICIES)}, or a function of entries"
        raise SetupError(f"there is no history {show(policy)}; {known}{nearest(policy, HISTORY_POLICIES)}")
    compiled = HistoryFunction(policy, takes_context=False)
    try:
        accepted = signature(policy)
    except (TypeError, ValueError):
        return compiled  # Some callables in C have no signature.
    for arguments in (("entries",), ("ctx", "entries")):
        try:
            accepted.bind(*arguments)
        except TypeError:
            continue
        return HistoryFunction(policy, takes_context=len(arguments) == 2)
    forms = "is called with (entries) or (ctx, entries)"
    raise SetupError(f"the history function `{compiled.name}` {forms}, but it takes {accepted}")


MultipleTransfers: TypeAlias = Literal["first", "last", "error"]
"""Which of several transfers in one response is followed."""


class RunConfig(Struct, frozen=True):
    """Settings of the runner for all agents of a run."""

    model: Model | None = None
    model_settings: ModelSettings | None = None
    multiple_transfers: MultipleTransfers = "first"
    max_corrections: int = 2
    hooks: RunHooks | None = None
    middleware: tuple[Any, ...] = ()
    """Middleware around the calls and activations of all agents, outermost first."""
    compaction: Compaction | None = None
    """The compaction of agents that have none of their own."""
    composed_calls: dict[str, tuple[object, AgentCalls]] = {}
    """The calls of each agent by name, with the agent; composed once."""
    compiled_agents: dict[str, Any] = {}
    """Each `CompiledAgent` by name, shared by all its activations."""
    prices: Prices | None = None
    """The prices of models; None if costs are not computed."""
    run_options: Any = None
    """The `RunOptions` of one run, whose compiled agents are then its own; None for most runs."""


class Answer(Struct, frozen=True):
    """An output, and who said it."""

    output: Any = None
    """The output."""
    said: tuple[keys.Key, ...] = ()
    """The keys of the responses that said it."""
    text: Content = ""
    """The text; if no response has said it, the agent says it when it ends."""

    @classmethod
    def of(cls, output: Any) -> "Answer":
        """Return an output that no response has said.

        Args:
            output: The output.
        """
        return cls(output, text=output if isinstance(output, str) else "")

    def is_for(self, output: Any) -> bool:
        """Return whether this is the answer with an output.

        Args:
            output: The output.
        """
        is_text = isinstance(output, str) and output != ""
        return output is self.output or (is_text and output in (self.output, self.text))


NO_ANSWER = Answer()


class FlowOutcome(Struct, frozen=True):
    """The end of a flow of control."""

    action: Action | None
    """The last agent's action."""
    origin: Origin
    """The last agent's activation."""
    answer: Answer
    """The last answer: that of the last agent or, if it has none, of an agent before it."""
    first: Origin
    """The first agent's activation."""

    @property
    def output(self) -> Any:
        """The output of the last answer."""
        return self.answer.output


class RecordsRequests(Protocol):
    """Makes the records of model requests."""

    def record(self, request: ModelRequest, read: Sequence[Message]) -> RequestRecord:
        """Return the record of a request of an agent that has read these messages."""
        ...


class RunServices(Struct):
    """The services that a runner attaches to one run; all its flows share them."""

    trace: RunTrace | None = None
    """Opens spans, if the run is traced."""
    requests: RecordsRequests | None = None
    """Makes the records of model requests, if the run is stored."""


class Flow(Protocol):
    """The flow of control that an activation is part of."""

    services: RunServices

    def run_agent(
        self,
        agent: HandoffTarget,
        *,
        run: RunState[Any],
        history: History,
        prefix: str,
        after: Origin,
        projection: str | HistoryFunction | None,
    ) -> Coroutine[Any, Any, FlowOutcome]:
        """Run an agent inside another; keys begin with `prefix`, paths continue from `after`."""
        ...


class ChecksMessages(Protocol):
    """Checks what the user says while an agent is active."""

    async def check_message(
        self, ctx: "AgentContext[Any]", scope: str, messages: Sequence[Message]
    ) -> Exception | None:
        """Check the last of these messages; return the error if it is rejected."""
        ...

    def recall_message(self, ctx: "AgentContext[Any]", scope: str) -> None:
        """Repeat what the recorded checks of a message have changed."""
        ...


class AgentContext(RunContext[Ctx], kw_only=True, eq=False):
    """The context of one activation of an agent: a `RunContext` with the conversation."""

    _history: History
    _view: HistoryView
    _routes: Routes
    _options: RunConfig
    _turn_start: int
    """The position in the history where the current turn begins."""
    _flow: Flow
    _answer: Answer = NO_ANSWER
    """The output of the activation, and who said it."""
    _inner_answer: Answer = NO_ANSWER
    """The last answer of an agent that was run inside."""
    _breaks_loop: bool = False
    """True if a tool has asked to end the loop around this agent."""
    _calls: AgentCalls
    """The model calls and tool calls of the agent, with everything that surrounds them."""
    _input_checks: tuple[ChecksMessages, ...] = ()
    """The input guardrails around the agent, outermost first."""
    _said: int = 0
    _task: TaskTools | None = None
    """The tools with which the agent ends its task, if it works on one."""

    @property
    def output(self) -> Any:
        """The output of this activation; by default the text it said last."""
        return self._answer.output

    @output.setter
    def output(self, output: Any) -> None:
        self._answer = self._answer_for(output)

    def _answer_for(self, output: Any) -> Answer:
        """Return the answer with an output, which may have been said already."""
        known = (self._answer, self._inner_answer)
        return next((answer for answer in known if answer.is_for(output)), Answer.of(output))

    def _answer_with(self, action: Action | None) -> Answer:
        """Return the answer of the activation if it ends with an action."""
        result = action.result if isinstance(action, Exit) else None
        return self._answer if result is None else self._answer_for(result)

    @property
    def _hooks(self) -> HookDispatcher | None:
        """The hooks of the run and the agent, if there are any."""
        return self._calls.hooks

    def messages(self) -> Sequence[Message]:
        """Return the conversation so far, as this agent reads it."""
        return self._view.messages()

    @must_be_awaited
    async def run_agent(
        self,
        agent: HandoffTarget,
        key: str,
        *,
        history: History | None = None,
    ) -> FlowOutcome:
        """Run one of this agent's `inner_agents()`, and the agents it transfers to.

        Args:
            agent: The agent to run.
            key: Identifies this step; unique in this activation and the same on every replay.
            history: The history to continue; by default this agent's own.
        """
        outcome = await self._run_inner(agent, key, history=history)
        self._inner_answer = outcome.answer
        return outcome

    def _run_inner(
        self,
        agent: HandoffTarget,
        key: str,
        *,
        history: History | None = None,
        run: RunState[Any] | None = None,
        after: Origin | None = None,
    ) -> Coroutine[Any, Any, FlowOutcome]:
        """Run an inner agent as `run_agent` does, in a part of the run or with another origin."""
        return self._flow.run_agent(
            agent,
            run=run or self._run,
            history=history or self._history,
            prefix=keys.flow_at(self._scope, key),
            after=after or self._origin,
            projection=None,
        )

    async def stream_text(self, text: str) -> None:
        """Stream a piece of text to subscribers. It is not recorded; `say` records the whole text.

        Args:
            text: The piece of text.
        """
        log = self._run.log
        if log.sink is not None and not log.has(keys.said(self._scope, self._said + 1)):
            log.deliver(TextDelta(self._origin, valid_text(text)))
            await log.settle()

    @must_be_awaited
    async def say(self, content: Content) -> None:
        """Add a message of this agent to the conversation; a replay does not repeat it.

        Args:
            content: Text or message parts.
        """
        self._said += 1
        key = keys.said(self._scope, self._said)
        log = self._run.log
        said = log.find(key, AgentResponded)
        if said is None:
            if not isinstance(content, str):
                to_json_value(f"the message of `{self.agent}`", content)
            log.announce(key, AgentResponded)
            said = AgentResponded(
                key,
                self._origin,
                time(),
                AssistantMessage(with_valid_text(content)),
                value_changes=self._take_changes(),
            )
            log.write(said)
            await log.settle()
        else:
            self._apply_changes(said.value_changes)
        self._history.apply(said, self._origin)
        text = text_of(said.message.content)
        self._answer = Answer(text, (key,), text)
