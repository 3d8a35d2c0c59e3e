"""Tasks: the stack of handoffs that give control back, and what agents read of a task that has ended.

A handoff with `return_to` adds to the stack: without `until` an agent to return to at the next answer, and with
`until="finished"` a task. Agents to return to are forgotten at the end of a run, unless a task was opened after them;
tasks continue in the next run of the thread. The log has both: `RunStarted.tasks`, `TaskOpened` and `TaskEnded`.
"""

from collections.abc import Collection, Sequence
from time import time
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ..agents import AgentContext, BaseAgent
from ..context import Limits, RunContext
from ..context.values import to_json_value
from ..errors import LimitError, ReplayMismatchError, SetupError, TaskResultError
from ..handoffs import Handoff
from ..handoffs.tasks import TaskTools, make_task_tools
from ..log import (
    Action,
    AgentStarted,
    CancelTask,
    ControlTransferred,
    Event,
    Finish,
    OpenTask,
    Origin,
    RunStarted,
    TaskEnded,
    TaskOpened,
    TaskOutcome,
    Transfer,
    UserMessageAdded,
    keys,
)
from ..log.entries import format_result
from ..messages import UserMessage

if TYPE_CHECKING:
    from .team import Team

QUESTION_KIND = "question"
"""The kind of the interrupt with which the agent of a nested task asks the user."""


class TaskStack(Struct, eq=False):
    """The agents and tasks that control returns to in one flow of control, the innermost last."""

    tasks: list[OpenTask] = []
    returns: list[str] = []
    """The agents to return to at the next answers, above the innermost task."""
    result: str = ""
    """The result of the task that the last action finished; "" if it finished none."""
    pending: OpenTask | None = None
    """The task of a transfer that is not recorded yet."""

    def tools_for(self, agent: str, team: "Team") -> TaskTools | None:
        """Return the tools that end an agent's task; None if the innermost task is not its own."""
        task = self.tasks[-1] if self.tasks else None
        if task is None or task.agent != agent:
            return None
        caller = team.members.get(task.caller)
        route = caller.routes.edge(task.agent, task.handoff) if caller is not None else None
        # The team may have changed since the task was opened; then the result is text.
        parser = route.handoff._result_parser if route is not None else None
        return make_task_tools(task.caller, task.return_to, parser, language=team.language)

    def follow(self, transfer: Transfer, handoff: Handoff | None, ctx: AgentContext[Any]) -> None:
        """Update the stack for a transfer that an agent asked for.

        A task is added by `open_pending`, once the transfer is recorded.
        """
        to = transfer.to
        agent = ctx.agent
        if self.returns and self.returns[-1] == to:
            self.returns.pop()
        elif self.tasks and (handoff is None or handoff.return_to is None) and not self.returns:
            task = self.tasks[-1]
            if task.agent == agent and task.return_to == to:
                self._end(ctx, "declined")
        if handoff is None or handoff.return_to is None:
            return
        back = agent if handoff.return_to == "caller" else handoff.return_to
        if handoff.until == "answered":
            self.returns.append(back)
            return
        key = keys.inside(ctx._scope, "task")
        via = transfer.via
        self.pending = OpenTask(key, to, agent, back, via, transfer.call_id, tuple(self.returns))

    def check_depth(self, limits: Limits, origin: Origin) -> None:
        """Check that one more task may be opened.

        Raises:
            LimitError: Too many tasks are open.
        """
        allowed = limits.open_tasks
        if self.pending is not None and allowed is not None and len(self.tasks) >= allowed:
            raise LimitError("open_tasks", allowed, origin.path)

    def open_pending(self, ctx: AgentContext[Any]) -> None:
        """Record the task of a transfer, if it has one, and add it to the stack."""
        task = self.pending
        log = ctx._run.log
        if task is None:
            return
        self.pending = None
        self.returns = []
        recorded = log.find(task.key, TaskOpened) if log.has_past else None
        if recorded is None:
            log.write(TaskOpened(task.key, ctx._origin, time(), task))
        elif recorded.task != task:
            raise ReplayMismatchError(task.key, f"{recorded.task}", f"{task}")
        self.tasks.append(task)

    def leave(self, action: Action | None, ctx: AgentContext[Any], agent: BaseAgent[Any, Any]) -> str | None:
        """Return the agent that is active after an action other than a transfer, if any."""
        self.result = ""
        if action is None:
            if self.returns:
                return self.returns.pop()
            # The end of a digression. A realtime agent ends only together with its session.
            is_digression = self.tasks and self.tasks[-1].agent != ctx.agent and not agent._stays_active
            return self.tasks[-1].agent if is_digression else None
        if type(action) is Finish or type(action) is CancelTask:
            return self._finish(action, ctx)
        return None

    def clear(self, ctx: AgentContext[Any]) -> None:
        """End all tasks without a result, as `Exit` and the loop fallback do."""
        self.pending = None
        while self.tasks:
            self._end(ctx, "dropped")
        self.returns.clear()

    def _finish(self, action: Finish | CancelTask, ctx: AgentContext[Any]) -> str | None:
        task = self.tasks[-1] if self.tasks else None
        if task is None and keys.is_nested(ctx._scope):
            return None  # A workflow around the agent may work on the task.
        if task is None or task.agent != ctx.agent:
            working = f"`{task.agent}` works on the innermost task" if task is not None else "no task is open"
            raise SetupError(
                f"`{ctx.agent}` returned {action!r}, but {working}; only the target of a handoff with "
                'until="finished" can end its task'
            )
        if isinstance(action, CancelTask):
            self._end(ctx, "cancelled", reason=action.reason)
        else:
            result = action.result if action.call_id is not None else _to_result(action.result, ctx)
            self.result = format_result(self._end(ctx, "finished", result).result)
        return task.return_to

    def _end(self, ctx: AgentContext[Any], outcome: TaskOutcome, result: Any = None, *, reason: str = "") -> TaskEnded:
        # One activation ends each depth at most once.
        log = ctx._run.log
        key = keys.inside(ctx._scope, f"task{len(self.tasks)}")
        task = self.tasks.pop()
        self.returns = list(task.returns)
        ended = log.find(key, TaskEnded) if log.has_past else None
        if ended is None:
            ended = TaskEnded(key, ctx._origin, time(), task, outcome, result, reason)
            log.write(ended)
        elif ended.outcome != outcome or ended.task != task:
            raise ReplayMismatchError(key, f"a task that was {ended.outcome}", f"a task that was {outcome}")
        ctx._history.apply(ended, ctx._origin)
        return ended


def _to_result(value: Any, ctx: AgentContext[Any]) -> Any:
    """Validate a result that code gave; return it as JSON data."""
    parser = ctx._task.parser if ctx._task is not None else None
    if parser is None:
        return to_json_value(f"the result of the task of `{ctx.agent}`", value)
    try:
        return parser.convert(value)
    except ValueError as error:
        raise TaskResultError(ctx.agent, f"a result of its task that fits `{parser.type_name}`", str(error)) from None


async def ask_user(ctx: AgentContext[Any], output: Any) -> None:
    """Ask the user to reply to the agent of a nested task, and add the reply to the history."""
    log = ctx._run.log
    scope = keys.inside(ctx._scope, "reply")
    text = "" if output is None else format_result(to_json_value(f"the answer of `{ctx.agent}`", output))
    asking: RunContext[Any] = RunContext(ctx._run, ctx._origin, scope)
    answer = await asking.interrupt({"kind": QUESTION_KIND, "agent": ctx.agent, "text": text})
    added = log.find(keys.inside(scope, "user"), UserMessageAdded)
    if added is None:
        added = UserMessageAdded(keys.inside(scope, "user"), ctx._origin, time(), UserMessage(format_result(answer)))
        log.write(added)
        await log.settle()
    ctx._history.apply(added, ctx._origin)


def open_tasks(events: Sequence[Event]) -> tuple[OpenTask, ...]:
    """Return the tasks that are open after a run, the innermost last.

    The next run of its thread starts with them.
    """
    tasks: list[OpenTask] = []
    run_id = ""
    for event in events:
        if isinstance(event, RunStarted):
            tasks = list(event.tasks)
            run_id = event.run_id
        elif isinstance(event, TaskOpened) and not keys.is_nested(event.origin.id):
            tasks.append(replace(event.task, run_id=run_id))
        elif isinstance(event, TaskEnded) and not keys.is_nested(event.origin.id):
            del tasks[-1:]
    return tuple(tasks)


def last_active_agent(events: Sequence[Event]) -> str:
    """Return the agent that holds control after these events; "" if none has started.

    It is the agent of the innermost task. Without tasks, it is the one that was active last, or the target of a
    transfer that was recorded but had not started it yet.
    """
    tasks = open_tasks(events)
    if tasks:
        return tasks[-1].agent
    for event in reversed(events):
        agent = agent_given_control(event)
        if agent is not None:
            return agent
    return ""


def agent_given_control(event: Event) -> str | None:
    """Return the agent that an event gives control to in the outermost flow, else None."""
    if keys.is_nested(event.origin.id):
        return None
    match event:
        case AgentStarted():
            return event.agent
        case ControlTransferred():
            return event.target
        case TaskEnded():
            return event.task.return_to
        case _:
            return None


def known_tasks(tasks: Sequence[OpenTask], agents: Collection[str]) -> tuple[OpenTask, ...]:
    """Return the outermost tasks whose agents are all part of the team."""
    for position, task in enumerate(tasks):
        if not {task.agent, task.return_to, *task.returns} <= {*agents}:
            return tuple(tasks[:position])
    return tuple(tasks)


def needs_reply(stack: TaskStack, action: Action | None, ctx: AgentContext[Any]) -> bool:
    """Return whether an answer is a question to the user in the middle of a nested task."""
    return action is None and bool(stack.tasks) and keys.is_nested(ctx._scope)
