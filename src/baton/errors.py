"""Every error Baton raises, branched by who can mend it. Imports nothing.

BatonError
├── SetupError              the program's author: a tool, agent or team that cannot work as written
├── ModelError              the model or its provider
│   ├── AuthenticationError     no key, or one that the provider does not take
│   ├── ModelNotFoundError      the provider has no model of that name, or not for this key
│   ├── WeightsError            the weights of an embedded model are missing, damaged or cannot be fetched
│   ├── ModelRequestError            the provider will not take this request, now or later
│   │   └── ContextTooLongError     the conversation is longer than the model can read
│   ├── ContentFilterError      the provider's filter stopped the request or the answer
│   ├── RateLimitError          too many requests; `retry_after` says when, if the provider does
│   ├── OverloadedError         the provider cannot answer at present
│   ├── ModelTimeoutError            no answer within the time allowed
│   ├── ModelConnectionError    the connection failed, or was cut in the middle of an answer
│   │   └── SessionLostError        a live conversation was cut off, and could not be taken up again
│   ├── MalformedResponseError  the provider sent something that is not its own format
│   ├── EmptyResponseError      it answered with neither text nor calls
│   ├── OutputError             its answer does not fit the agent's output type
│   └── UnknownToolError        it kept calling tools that do not exist
├── ToolError               a tool
│   ├── ToolFailedError              it raised, and its policy is to end the run
│   ├── ToolTimeoutError             it took longer than it may
│   ├── ToolResultError         it returned something that no model can read
│   └── ToolsUnavailableError        where tools come from, such as a server, cannot be reached
└── RunError                the run: limits, conflicts, a log that cannot be read
    ├── LimitError              a tree-wide limit was reached
    ├── TurnLimitError          one agent used up its turns without an answer
    ├── TransferError           a transfer that cannot be followed
    │   ├── HandoffInputError       a model that cannot give a handoff the input it wants
    │   └── LoopError               agents pass control round and nothing new happens
    ├── BranchesFailedError          branches of a parallel agent failed; `errors` has them by name
    ├── BranchTimeoutError           a branch of a parallel agent took longer than it may
    ├── GuardrailTrippedError        a guardrail said no
    ├── GuardrailFailedError         a guardrail raised instead of saying anything
    ├── Declined                an agent does not want the task; raise it yourself, the message is for whoever asked
    ├── RemoteError             an agent of another service failed, or did not keep to the protocol
    │   ├── RemoteRejectedError          it does not want the task
    │   └── RemoteUnavailableError       it cannot be reached
    ├── NotEncodableError       a value that cannot be written to the log
    ├── RunNotFoundError        no run of that id is kept, or waits, here
    ├── TeamChangedError             the team is no longer the one that a stored run began with
    ├── AnswerError             an answer to a question that is not open, or of the wrong form
    ├── ReplayMismatchError          the code no longer does what the log says it did
    ├── LogError                a log that cannot be read
    └── StoreError              where logs are kept: it cannot be reached, is full, or will not take this
        ├── RunConflictError             somebody else drives this run, or has written to it
        ├── RunExistsError          there is a run of that id already
        └── ThreadBusyError              a run of that thread has not ended
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal


def quote_names(names: Sequence[str]) -> str:
    """Names as an error message shows them: `A`, `B`; "nothing" if there are none."""
    return ", ".join(f"`{name}`" for name in names) or "nothing"


class BatonError(Exception):
    """Anything that Baton raises on purpose."""


class SetupError(BatonError):
    """The program is put together in a way that cannot work."""


def check_choice(what: str, given: object, choices: Sequence[str]) -> None:
    """Raise SetupError if a word is not among those there are."""
    if given not in choices:
        raise SetupError(f"{what} is {given!r}; it can be: {quote_names(choices)}")


def unknown_argument(owner: str, name: str, known: Iterable[str]) -> SetupError:
    """Build the error for a keyword argument that does not exist, naming the nearest valid one."""
    from difflib import get_close_matches

    names = list(known)
    near = [each for each in names if name in each] or get_close_matches(name, names, n=1)
    advice = f"did you mean `{near[0]}`?" if near else f"it takes: {quote_names(names)}"
    return SetupError(f"{owner} has no argument `{name}`; {advice}")


class ModelError(BatonError):
    """The model or its provider failed; `retryable` says whether the same request may succeed later."""

    def __init__(
        self, message: str, *, model: str = "", retryable: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.model = model
        self.retryable = retryable
        self.retry_after = retry_after


class AuthenticationError(ModelError):
    """The provider was given no key, or does not take the one it was given."""


class ModelNotFoundError(ModelError):
    """The provider has no model of that name, or does not let this key use it."""


class WeightsError(ModelError):
    """The weights of an embedded model are not here, are not what they should be, or cannot be fetched."""


class ModelRequestError(ModelError):
    """The provider will not take this request; sending it again would not help."""


class ContextTooLongError(ModelRequestError):
    """The conversation is longer than the model can read."""


class ContentFilterError(ModelError):
    """The provider's filter stopped the request or the answer."""


class RateLimitError(ModelError):
    """Too many requests or tokens in too short a time; `retry_after` is in seconds, if the provider says so."""


class OverloadedError(ModelError):
    """The provider cannot answer at present: it is overloaded, or something in it is broken."""


class ModelTimeoutError(ModelError):
    """There was no answer within the time allowed."""


class ModelConnectionError(ModelError):
    """The provider could not be reached, or the connection was cut in the middle of an answer."""


class SessionLostError(ModelConnectionError):
    """The connection of a live conversation was lost, and `attempts` to have another failed. It can be resumed."""

    def __init__(self, message: str, *, model: str = "", attempts: int = 0) -> None:
        super().__init__(message, model=model, retryable=True)
        self.attempts = attempts


class MalformedResponseError(ModelError):
    """The provider sent something that is not its own format."""


class EmptyResponseError(ModelError):
    """The model answered with neither text nor calls."""


class OutputError(ModelError):
    """The model's answer does not fit the output type, even after corrections."""

    def __init__(self, agent: str, wanted: str, problems: str) -> None:
        super().__init__(f"`{agent}` must answer with {wanted}, but its model did not manage to: {problems}")
        self.agent = agent
        self.wanted = wanted
        self.problems = problems


class UnknownToolError(ModelError):
    """The model kept calling tools that do not exist."""

    def __init__(self, agent: str, wish: str, available: Sequence[str]) -> None:
        super().__init__(f"the model of `{agent}` keeps calling `{wish}`; its tools are: {quote_names(available)}")
        self.agent = agent
        self.wish = wish
        self.available = tuple(available)


class ToolError(BatonError):
    """A tool failed. A tool may raise it itself: the message goes to the model as it is."""

    def __init__(self, message: str, *, tool: str = "") -> None:
        super().__init__(message)
        self.tool = tool


class ToolFailedError(ToolError):
    """A tool with `on_error="raise"` raised; the cause is chained."""


class ToolTimeoutError(ToolError):
    """A tool took longer than its timeout."""

    def __init__(self, tool: str, seconds: float) -> None:
        super().__init__(f"tool `{tool}` did not finish within {seconds:g} s", tool=tool)
        self.seconds = seconds


class ToolResultError(ToolError):
    """A tool returned something that cannot be shown to a model."""


class ToolsUnavailableError(ToolError):
    """Where an agent's tools come from cannot be reached, so it is not known which there are. Resume the run later."""

    def __init__(self, source: str, because: str) -> None:
        super().__init__(f"the tools of {source} are not to be had: {because}")
        self.source = source
        self.because = because


class RunError(BatonError):
    """The run cannot go on."""


class LimitError(RunError):
    """A limit of the whole run was reached, or of a part that has a share of its own; `path` is where."""

    def __init__(self, limit: str, allowed: float, path: Sequence[str], *, share: object = None) -> None:
        where, who = " → ".join(path[-8:]), "an agent called as a tool" if share is not None else "the run"
        super().__init__(f"{who} reached its limit of {allowed:g} {limit} at {where}; raise it with Limits({limit}=…)")
        self.share = share
        """The meter of the part whose share it is; None if it is the run's."""
        self.limit = limit
        self.allowed = allowed
        self.path = tuple(path)


class TurnLimitError(RunError):
    """One agent used up its turns and had no answer even in the last call without tools."""

    def __init__(self, agent: str, max_turns: int) -> None:
        super().__init__(f"`{agent}` has no answer after {max_turns} turns; raise it with Agent(max_turns=…)")
        self.agent = agent
        self.max_turns = max_turns


class TransferError(RunError):
    """A transfer that cannot be followed."""

    def __init__(self, source: str, wish: str, reachable: Sequence[str], *, because: str = "") -> None:
        super().__init__(because or f"`{source}` cannot transfer to `{wish}`; it can reach: {quote_names(reachable)}.")
        self.source = source
        self.wish = wish
        self.reachable = tuple(reachable)


class HandoffInputError(TransferError):
    """The model did not manage to give a handoff the input it wants; `problems` names places, never values."""

    def __init__(self, source: str, target: str, problems: str) -> None:
        because = f"the model of `{source}` gave the handoff to `{target}` input that does not fit: {problems}"
        super().__init__(source, target, (target,), because=because)
        self.problems = problems


class LoopError(TransferError):
    """Two agents pass control to and fro and nothing new happens."""

    def __init__(self, source: str, wish: str, times: int, path: Sequence[str]) -> None:
        because = (
            f"`{source}` and `{wish}` passed control back and forth {times} times and nothing new happened; "
            "give one of them a reason to answer, or name who takes over with Runner(on_loop=…)"
        )
        super().__init__(source, wish, (), because=because)
        self.times = times
        self.path = tuple(path)


class BranchesFailedError(RunError):
    """Branches of a parallel agent failed; the others have ended in good order. `errors` are theirs, by name."""

    def __init__(self, agent: str, errors: Mapping[str, Exception]) -> None:
        each = "; ".join(f"`{name}`: {type(error).__name__}: {error}" for name, error in errors.items())
        super().__init__(f"{len(errors)} of the branches of `{agent}` failed: {each}")
        self.agent = agent
        self.errors = dict(errors)


class BranchTimeoutError(RunError):
    """A branch of a parallel agent took longer than it may."""

    def __init__(self, agent: str, branch: str, seconds: float) -> None:
        super().__init__(f"the branch `{branch}` of `{agent}` did not end within {seconds:g} s")
        self.agent = agent
        self.branch = branch
        self.seconds = seconds


class GuardrailTrippedError(RunError):
    """A guardrail said no. `verdict` is all that it said; `tool` is "" unless it is about a call."""

    def __init__(
        self,
        guardrail: str,
        agent: str,
        *,
        stage: Literal["input", "output", "tool"],
        reason: str = "",
        verdict: Any = None,
        tool: str = "",
    ) -> None:
        what = f"a call of `{tool}` by `{agent}`" if stage == "tool" else f"the {stage} of `{agent}`"
        super().__init__(f"guardrail `{guardrail}` stopped {what}{f': {reason}' if reason else ''}")
        self.guardrail = guardrail
        self.agent = agent
        self.stage = stage
        self.reason = reason
        self.verdict = verdict
        self.tool = tool


class GuardrailFailedError(RunError):
    """A guardrail raised; the cause is chained. What it guards is not let through."""

    def __init__(self, guardrail: str, agent: str, *, stage: Literal["input", "output", "tool"], because: str) -> None:
        what = f"a tool call by `{agent}`" if stage == "tool" else f"the {stage} of `{agent}`"
        super().__init__(f"guardrail `{guardrail}` could not judge {what}: it raised {because}")
        self.guardrail = guardrail
        self.agent = agent
        self.stage = stage


class TaskDeclinedError(RunError):
    """An agent does not want the task. Raise it in an agent of your own: its message goes to whoever asked."""


class RemoteError(RunError):
    """An agent of another service failed. `state` is what its task came to, "" if that is not known."""

    def __init__(self, agent: str, because: str, *, task_id: str = "", state: str = "") -> None:
        super().__init__(f"the remote agent `{agent}` could not do its part: {because}")
        self.agent = agent
        self.because = because
        self.task_id = task_id
        self.state = state


class RemoteRejectedError(RemoteError):
    """An agent of another service does not want the task."""


class RemoteUnavailableError(RemoteError):
    """An agent of another service cannot be reached; whether it has the last message may be unknown."""


class NotEncodableError(RunError):
    """A value that cannot be written to the log as JSON."""

    def __init__(self, what: str, value: object, reason: str) -> None:
        super().__init__(
            f"{what} is a {type(value).__name__}, which cannot be written to the log ({reason}); "
            "use what JSON can hold, a dataclass or a pydantic model, or keep live objects in the run's context"
        )
        self.what = what
        self.value = value


class RunNotFoundError(RunError):
    """No run of that id waits with this runner; or, if it names a store, none is kept there."""

    def __init__(self, run_id: str, waiting: Sequence[str] = (), *, store: str = "") -> None:
        super().__init__(
            f"there is no run `{run_id}` in {store}; `list` tells which there are"
            if store
            else f"no run `{run_id}` waits to be resumed: it is finished, or another runner has it; "
            f"waiting here: {quote_names(waiting[:5])}"
        )
        self.run_id = run_id
        self.waiting = tuple(waiting)
        self.store = store


class TeamChangedError(RunError):
    """The team is no longer the one that a stored run began with; `differences` says how."""

    def __init__(self, run_id: str, differences: Sequence[str]) -> None:
        super().__init__(
            f"run `{run_id}` began with another team: {'; '.join(differences)}. Resume it with the team it began with, "
            "or with accept_changes=True if what it has done so far still makes sense"
        )
        self.run_id = run_id
        self.differences = tuple(differences)


class AnswerError(RunError):
    """An answer to a question that is not open, or one of the wrong form. Nothing was written."""


class ReplayMismatchError(RunError):
    """The code no longer produces what the log recorded; `key` is the first difference."""

    def __init__(self, key: str, recorded: str, produced: str) -> None:
        super().__init__(f"at `{key}` the log has {recorded}, but the code produces {produced}")
        self.key = key
        self.recorded = recorded
        self.produced = produced


class LogError(RunError):
    """A log that cannot be read; `where` is the number of the event, counted from 0."""

    def __init__(self, where: int, reason: str) -> None:
        super().__init__(f"the log cannot be read at event {where}: {reason}")
        self.where = where
        self.reason = reason


class StoreError(RunError):
    """A store cannot do what it should: it cannot be reached, is full, locked, or may not be written to.

    `store` names it, without its password; "" if the trouble is not the store's own.
    """

    def __init__(self, message: str, *, store: str = "") -> None:
        super().__init__(f"{store}: {message}" if store else message)
        self.store = store


class RunConflictError(StoreError):
    """Somebody else drives this run, or has written to it meanwhile. Whoever gets this must stop."""

    def __init__(self, run_id: str, because: str) -> None:
        super().__init__(f"run `{run_id}` is driven by somebody else: {because}")
        self.run_id = run_id
        self.because = because


class RunExistsError(StoreError):
    """There is a run of that id already."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"there is a run `{run_id}` already; resume it, or choose another run_id")
        self.run_id = run_id


class ThreadBusyError(StoreError):
    """A run of that thread has not ended, and a thread has one run at a time."""

    def __init__(self, thread: str, run_id: str, status: str) -> None:
        super().__init__(
            f"thread `{thread}` is busy: its run `{run_id}` is {status}; resume, cancel or delete that run first"
        )
        self.thread = thread
        self.run_id = run_id
        self.status = status


def ends_run(error: Exception) -> bool:
    """Whether nothing inside the run may go on after this, neither a caller nor a branch beside it."""
    of_the_run = ReplayMismatchError | LogError | StoreError | RunNotFoundError | NotEncodableError | LimitError
    return isinstance(error, SetupError | of_the_run)
