"""Every error that Baton raises: one tree under `BatonError`, branched by who can fix the problem."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from ._wording import nearest as nearest
from ._wording import quote_names as quote_names
from ._wording import show, type_of


class BatonError(Exception):
    """Base class of every error that Baton raises."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)


class SetupError(BatonError):
    """The program is put together in a way that cannot work: fix the code or the configuration."""


class AddressError(SetupError):
    """A server cannot listen on its address: it is invalid or in use."""


class InvalidIdError(SetupError):
    """A new run cannot have this id, thread or owner: it has characters that are not allowed.

    Attributes:
        parameter: The parameter that holds it.
        id: The id or name.
    """

    def __init__(self, parameter: str, id: str, character: str, allowed: str) -> None:
        super().__init__(f"{parameter} is {show(id)}, which contains {character!r}; use {allowed}")
        self.parameter = parameter
        self.id = id


class MissingExtraError(SetupError, ImportError):
    """A feature needs a package that is not installed; the message has the pip command.

    Attributes:
        extra: The extra of `batonkit` that contains it; "" if none does.
    """

    def __init__(self, what: str, extra: str, missing: ImportError | str, *, packages: str = "") -> None:
        name = missing if isinstance(missing, str) else missing.name or str(missing)
        wanted = packages or f"batonkit[{extra}]"
        super().__init__(f"{what} needs `{name}`, which is not installed: pip install '{wanted}'")
        self.extra = extra


class ModelError(BatonError):
    """The model or its provider failed.

    Attributes:
        model: The name of the model, "" if unknown.
        retryable: Whether the same request may succeed later.
        retry_after: Seconds to wait before the next attempt, if the provider says so.
        given_up: Whether a `RetryModel` or `FallbackModel` has given up after it.
        attempts: How many times the model was called, including retries.
    """

    def __init__(
        self, message: str, *, model: str = "", retryable: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.model = model
        self.retryable = retryable
        self.retry_after = retry_after
        self.given_up = False
        self.attempts = 1


class AuthenticationError(ModelError):
    """The API key is missing, or the provider rejected it."""


class ModelNotFoundError(ModelError):
    """The provider has no model of that name, or the key has no access to it."""


class WeightsError(ModelError):
    """The weights of an embedded model are missing, damaged or cannot be downloaded."""


class ModelRequestError(ModelError):
    """The provider rejected the request; retrying will not help."""


class ContextTooLongError(ModelRequestError):
    """The conversation exceeds the model's context window."""


class ContentFilterError(ModelError):
    """The provider's content filter blocked the request or the response."""


class RateLimitError(ModelError):
    """Too many requests or tokens; `retry_after` says when to try again, if known."""


class OverloadedError(ModelError):
    """The provider is overloaded or has an internal error."""


class ModelTimeoutError(ModelError):
    """The model did not respond in time."""


class ModelConnectionError(ModelError):
    """The provider could not be reached, or the connection broke off during a response."""


class SessionLostError(ModelConnectionError):
    """A realtime session was lost and could not be reopened; the run can be resumed.

    Attributes:
        attempts: Number of failed reconnects.
    """

    def __init__(self, message: str, *, model: str = "", attempts: int = 0) -> None:
        super().__init__(message, model=model, retryable=True)
        self.attempts = attempts


class MalformedResponseError(ModelError):
    """The provider's response is not in its documented format."""


class EmptyResponseError(ModelError):
    """The model responded with neither text nor tool calls."""


class OutputError(ModelError):
    """The model's answer does not fit the output type, even after corrections.

    Attributes:
        agent: The agent.
        expected: The expected type, as the message names it.
        problems: The validation errors.
    """

    def __init__(self, agent: str, expected: str, problems: str) -> None:
        super().__init__(f"`{agent}` must answer with {expected}, but its model failed to: {problems}")
        self.agent = agent
        self.expected = expected
        self.problems = problems


class TaskResultError(OutputError):
    """The result of a task does not fit the `result_type` of its handoff."""


class UnknownToolError(ModelError):
    """The model keeps calling a tool that does not exist.

    Attributes:
        agent: The agent.
        tool: The name that was called.
        available: The agent's tools.
    """

    def __init__(self, agent: str, tool: str, available: Sequence[str]) -> None:
        super().__init__(f"the model of `{agent}` keeps calling `{tool}`; its tools are: {quote_names(available)}")
        self.agent = agent
        self.tool = tool
        self.available = tuple(available)


class ToolError(BatonError):
    """A tool failed. Raise it in a tool to return its message to the model.

    Attributes:
        tool: The name of the tool, "" if unknown.
    """

    def __init__(self, message: str, *, tool: str = "") -> None:
        super().__init__(message)
        self.tool = tool


class ToolFailedError(ToolError):
    """A tool with `on_error="raise"` raised, which is chained; or a call lacks `await`."""


class ToolTimeoutError(ToolError):
    """A tool exceeded its timeout.

    Attributes:
        seconds: The timeout.
    """

    def __init__(self, tool: str, seconds: float) -> None:
        super().__init__(f"tool `{tool}` did not finish within {seconds:g} s", tool=tool)
        self.seconds = seconds


class ToolResultError(ToolError):
    """A tool returned a value that cannot be shown to a model."""


class ToolsUnavailableError(ToolError):
    """A toolset, such as an MCP server, cannot be reached; the run can be resumed later.

    Attributes:
        source: The toolset.
        reason: Why it is unavailable.
    """

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"could not load tools from {source}: {reason}")
        self.source = source
        self.reason = reason


class RunError(BatonError):
    """The run cannot continue."""


class LimitError(RunError):
    """A limit of the run, or of an agent called as a tool, was reached.

    Attributes:
        limit: The name of the limit: a field of `Limits`.
        allowed: Its value.
        path: The run path at which it was reached.
        share: The meter of the agent tool that has the limit; None if it is the run's.
    """

    def __init__(self, limit: str, allowed: float, path: Sequence[str], *, share: object = None) -> None:
        where = " → ".join(path[-8:])
        part = "an agent called as a tool" if share is not None else "the run"
        super().__init__(f"{part} reached its limit of {allowed:g} {limit} at {where}; raise it with Limits({limit}=…)")
        self.share = share
        self.limit = limit
        self.allowed = allowed
        self.path = tuple(path)


class UnknownPriceError(RunError):
    """A run with a limit on its cost called a model whose price is unknown.

    Attributes:
        path: The run path at which the model was called.
    """

    def __init__(self, path: Sequence[str]) -> None:
        super().__init__(
            f"the price of the model that was called at {' → '.join(path[-8:])} is unknown, so that Limits(cost=…) "
            "cannot hold; give its price with Runner(prices=PriceTable({name: ModelPrice(…)})). genai-prices, which "
            "pip install 'batonkit[prices]' installs, has the prices of most models, but of no realtime model"
        )
        self.path = tuple(path)


class TurnLimitError(RunError):
    """An agent used up its turns and had no answer even in the last call without tools.

    Attributes:
        agent: The agent.
        max_turns: Its limit.
    """

    def __init__(self, agent: str, max_turns: int) -> None:
        super().__init__(f"`{agent}` has no answer after {max_turns} turns; raise the limit with Agent(max_turns=…)")
        self.agent = agent
        self.max_turns = max_turns


class TransferError(RunError):
    """A transfer that is not possible.

    Attributes:
        source: The agent that asked for it.
        target: The agent it asked for.
        reachable: The agents that `source` can transfer to.
    """

    def __init__(self, source: str, target: str, reachable: Sequence[str], *, reason: str = "") -> None:
        known = f"`{source}` cannot transfer to `{target}`; it can reach: {quote_names(reachable)}"
        super().__init__(reason or known + (nearest(target, reachable) or "."))
        self.source = source
        self.target = target
        self.reachable = tuple(reachable)


class HandoffInputError(TransferError):
    """The model gave a handoff invalid input, even after corrections.

    Attributes:
        problems: The validation errors; they name fields, never values.
    """

    def __init__(self, source: str, target: str, problems: str) -> None:
        reason = f"the model of `{source}` gave invalid input for the handoff to `{target}`: {problems}"
        super().__init__(source, target, (target,), reason=reason)
        self.problems = problems


class LoopError(TransferError):
    """Agents transfer in a cycle without progress.

    Attributes:
        times: The number of repetitions.
        path: The run path.
        cycle: The agents of one round, the first one again at the end.
    """

    def __init__(self, source: str, target: str, times: int, path: Sequence[str], *, cycle: Sequence[str]) -> None:
        is_pair = len(cycle) == 3
        ring = " → ".join(f"`{agent}`" for agent in cycle)
        what = f"`{source}` and `{target}` transferred back and forth" if is_pair else f"control went round {ring}"
        advice = "change their instructions, or name an agent that takes over with HandoffRules(loop_fallback=…)"
        super().__init__(source, target, (), reason=f"{what} {times} times without progress; {advice}")
        self.times = times
        self.path = tuple(path)
        self.cycle = tuple(cycle)


class BranchesFailedError(RunError):
    """Branches of a parallel agent failed; the other branches finished normally.

    Attributes:
        agent: The parallel agent.
        errors: The errors by branch name.
    """

    def __init__(self, agent: str, errors: Mapping[str, Exception]) -> None:
        each = "; ".join(f"`{name}`: {type(error).__name__}: {error}" for name, error in errors.items())
        super().__init__(f"{len(errors)} of the branches of `{agent}` failed: {each}")
        self.agent = agent
        self.errors = dict(errors)


class BranchTimeoutError(RunError):
    """A branch of a parallel agent exceeded its timeout.

    Attributes:
        agent: The parallel agent.
        branch: The agent that ran in the branch.
        seconds: The timeout.
    """

    def __init__(self, agent: str, branch: str, seconds: float) -> None:
        super().__init__(f"branch `{branch}` of `{agent}` did not finish within {seconds:g} s")
        self.agent = agent
        self.branch = branch
        self.seconds = seconds


class GuardrailTrippedError(RunError):
    """A guardrail rejected input, output or a tool call.

    Attributes:
        guardrail: The name of the guardrail.
        agent: The agent it guards.
        stage: The check that failed.
        reason: The guardrail's explanation.
        verdict: The whole `GuardrailVerdict`.
        tool: The name of the tool, "" unless a tool call was rejected.
    """

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
    """A guardrail raised an exception, which is chained; its subject is not let through.

    Attributes:
        guardrail: The name of the guardrail.
        agent: The agent it guards.
        stage: The check that failed.
    """

    def __init__(self, guardrail: str, agent: str, *, stage: Literal["input", "output", "tool"], reason: str) -> None:
        what = f"a tool call by `{agent}`" if stage == "tool" else f"the {stage} of `{agent}`"
        super().__init__(f"guardrail `{guardrail}` could not check {what}: it raised {reason}")
        self.guardrail = guardrail
        self.agent = agent
        self.stage = stage


class TaskFailedError(RunError):
    """An agent cannot fulfil the task. Raise it in your agent; the caller gets the message."""


class TaskDeclinedError(TaskFailedError):
    """An agent declines the task. Raise it in your own agent; the message goes to the caller."""


class RemoteError(BatonError):
    """An agent of another service failed or violated the protocol.

    Attributes:
        agent: The remote agent.
        reason: The failure.
        task_id: Its task, "" if there is none.
        state: The last known state of the task, "" if unknown.
    """

    def __init__(self, agent: str, reason: str, *, task_id: str = "", state: str = "") -> None:
        super().__init__(f"remote agent `{agent}` failed: {reason}")
        self.agent = agent
        self.reason = reason
        self.task_id = task_id
        self.state = state


class RemoteRejectedError(RemoteError):
    """An agent of another service rejected the task."""


class RemoteUnavailableError(RemoteError):
    """An agent of another service cannot be reached; the last message may have arrived."""


class NotEncodableError(RunError):
    """A value cannot be written to the log as JSON.

    Attributes:
        what: The place of the value.
        value: The value.
    """

    def __init__(self, what: str, value: object, reason: str) -> None:
        remedy = "use JSON values, dataclasses or pydantic models, and keep other objects in the run's context"
        super().__init__(f"{what} is {type_of(value)}, which cannot be written to the log ({reason}); {remedy}")
        self.what = what
        self.value = value


class RunNotFoundError(RunError):
    """There is no such run.

    Attributes:
        run_id: The run.
        store: The store; "" if that is not told.
    """

    def __init__(self, run_id: str, *, store: str = "") -> None:
        where = f" in {store}" if store else ""
        super().__init__(f"there is no run `{run_id}`{where}; list the runs to see which there are")
        self.run_id = run_id
        self.store = store


class TeamChangedError(RunError):
    """The team differs from the one that the run began with.

    Attributes:
        run_id: The run.
        differences: A line for each agent that changed.
    """

    def __init__(self, run_id: str, differences: Sequence[str], *, missing_root: str = "") -> None:
        accept = "or with accept_changes=True if its recorded steps are still valid"
        need = f"because it started with `{missing_root}`, which this team does not have"
        remedy = f"Resume it with the original team, {need if missing_root else accept}"
        super().__init__(f"run `{run_id}` began with a different team: {'; '.join(differences)}. {remedy}")
        self.run_id = run_id
        self.differences = tuple(differences)


class AnswerError(RunError):
    """An answer fits no open interrupt or violates its schema. Nothing was written."""


class InterruptExpiredError(RunError):
    """An interrupt was not answered before its deadline, and has no default answer.

    Attributes:
        interrupt_id: The id of the interrupt.
        deadline: The deadline, in seconds since the epoch.
    """

    def __init__(self, interrupt_id: str, deadline: float) -> None:
        moment = datetime.fromtimestamp(deadline, UTC).isoformat(" ", "seconds")
        super().__init__(f"interrupt `{interrupt_id}` was not answered by {moment}")
        self.interrupt_id = interrupt_id
        self.deadline = deadline


class OpenInterruptError(RunError):
    """Code caught the exception that its interrupt raised, and continued without the answer."""


class ShuttingDownError(RunError):
    """The worker is shutting down and takes no more runs. Nothing was written."""


class WorkerDiedError(RunError):
    """The run was failed because the workers that drove it died; resuming it tries again.

    Attributes:
        run_id: The run.
        deaths: The number of workers that died without recording anything new.
    """

    def __init__(self, run_id: str, deaths: int) -> None:
        super().__init__(
            f"{deaths} workers died one after the other while they drove run `{run_id}`; find out why, "
            f"for example out of memory, then `baton runs retry {run_id}`"
        )
        self.run_id = run_id
        self.deaths = deaths


class ReplayMismatchError(RunError):
    """The code no longer produces the events that the log recorded.

    Attributes:
        key: The key of the first difference.
        recorded: The recorded event.
        produced: The event that the code produces.
        skipped: The key of the first recorded event that the code skips, if the log has nothing at `key`; else "".
    """

    def __init__(self, key: str, recorded: str, produced: str, skipped: str = "") -> None:
        end = f" and skips the recorded `{skipped}`" if skipped else ""
        super().__init__(f"at `{key}` the log has {recorded}, but the code produces {produced}{end}")
        self.key = key
        self.recorded = recorded
        self.produced = produced
        self.skipped = skipped


class LogError(RunError):
    """A log cannot be read.

    Attributes:
        position: The number of the event, counted from 0.
        reason: The problem.
    """

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"the log cannot be read at event {position}: {reason}")
        self.position = position
        self.reason = reason


class StoreError(BatonError):
    """A store is unreachable, full, locked or read-only.

    Attributes:
        store: The store without its password; "" if the store itself is not the problem.
    """

    def __init__(self, message: str, *, store: str = "") -> None:
        super().__init__(f"{store}: {message}" if store else message)
        self.store = store


class RunConflictError(StoreError):
    """Another worker drives this run or has written to it; this worker must stop.

    Attributes:
        run_id: The run.
        reason: The conflict.
    """

    def __init__(self, run_id: str, reason: str, *, problem: str = "is driven by another worker") -> None:
        super().__init__(f"run `{run_id}` {problem}: {reason}")
        self.run_id = run_id
        self.reason = reason


class RunNotSuspendedError(RunConflictError):
    """An answer came for a run that was cancelled or has failed."""


class RunExistsError(StoreError):
    """The run id is already taken.

    Attributes:
        run_id: The run.
    """

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run `{run_id}` already exists; resume it, or choose another run_id")
        self.run_id = run_id


class ThreadBusyError(StoreError):
    """The thread has an unfinished run; a thread has one run at a time.

    Attributes:
        thread: The thread.
        run_id: The unfinished run.
        status: Its status.
    """

    def __init__(self, thread: str, run_id: str, status: str) -> None:
        super().__init__(
            f"thread `{thread}` is busy: its run `{run_id}` is {status}; resume, cancel or delete that run first, "
            'or let the message wait: when_busy="queue"'
        )
        self.thread = thread
        self.run_id = run_id
        self.status = status


class ThreadExistsError(StoreError):
    """A fork was to begin a thread that has runs already.

    Attributes:
        thread: The thread.
        run_id: Its last run.
    """

    def __init__(self, thread: str, run_id: str) -> None:
        super().__init__(
            f"thread `{thread}` has runs, the last one is `{run_id}`; a fork begins a new thread: choose another id"
        )
        self.thread = thread
        self.run_id = run_id


class InboxFullError(StoreError):
    """Too many messages wait for a thread."""

    def __init__(self, thread: str, limit: int) -> None:
        hint = "wait for its run to finish, or cancel some of them"
        super().__init__(f"{limit} messages wait for thread `{thread}` already; {hint}")
        self.thread = thread
        self.limit = limit


class MessageGoneError(StoreError):
    """A message does not wait any more: it has become a run, steered one, or was cancelled."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"message `{run_id}` does not wait any more: it was taken by a run, or cancelled")
        self.run_id = run_id
