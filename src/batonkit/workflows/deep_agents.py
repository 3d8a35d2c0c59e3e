"""The deep agent: an agent with a to-do list, sub-agents for tasks, and optional scratch files in the run's values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import Struct

from .._checks import check_arguments
from ..agents import Agent, BaseAgent
from ..context import Limits, RunContext, Values
from ..errors import SetupError, ToolError, nearest, quote_names
from ..messages import ToolSpec, object_schema
from ..models import Model
from ..tools import Tool, ToolResult, tool

FILE_KEY = "file"
"""Prefix of the key of a scratch file in the run's values; `:` and the path follow."""

_MAX_LINES = 2000


@tool
async def ls(ctx: RunContext[Any]) -> str:
    """List the files in the scratch space, with their length in characters."""
    files = list_paths(ctx.values)
    return "\n".join(f"{path} ({len(ctx.values[_key(path)])})" for path in files) or "There are no files yet."


@tool
async def read_file(ctx: RunContext[Any], path: str, offset: int = 0, limit: int = _MAX_LINES) -> str:
    """Read a file of the scratch space."""
    lines = _text(ctx, path).splitlines()
    shown = lines[max(offset, 0) : max(offset, 0) + max(limit, 1)]
    if not shown:
        return f"(`{path}` has {len(lines)} lines; there is nothing after line {offset})" if lines else "(empty)"
    more = len(lines) - max(offset, 0) - len(shown)
    return "\n".join([*shown, f"({more} more lines)"] if more > 0 else shown)


@tool
async def write_file(ctx: RunContext[Any], path: str, content: str) -> str:
    """Write a file of the scratch space; its previous content is replaced."""
    ctx.values.set(_key(path), content)
    return f"wrote `{_normalize(path)}`, {len(content)} characters"


@tool
async def edit_file(ctx: RunContext[Any], path: str, old: str, new: str, replace_all: bool = False) -> str:
    """Replace text in a file of the scratch space."""
    text = _text(ctx, path)
    found = text.count(old) if old else 0
    if found == 0:
        raise ToolError(f"`{path}` does not contain that text; read it first")
    if found > 1 and not replace_all:
        raise ToolError(f"`{path}` contains that text {found} times; give a longer text, or set replace_all")
    ctx.values.set(_key(path), text.replace(old, new))
    return f"replaced it {found} time{'' if found == 1 else 's'} in `{_normalize(path)}`"


def scratch_file_tools() -> tuple[Tool, ...]:
    """Return tools to list, read, write and edit files that are kept in the run's values."""
    return (ls, read_file, write_file, edit_file)


def list_paths(values: "Values | dict[str, Any]") -> list[str]:
    """Return the paths of the scratch files."""
    return sorted(key.partition(":")[2] for key in values if key.startswith(f"{FILE_KEY}:"))


def _text(ctx: RunContext[Any], path: str) -> str:
    text = ctx.values.get(_key(path))
    if text is None:
        paths = list_paths(ctx.values)
        raise ToolError(f"there is no file `{path}`; the files are: {quote_names(paths)}{nearest(path, paths)}")
    return str(text)


def _key(path: str) -> str:
    return f"{FILE_KEY}:{_normalize(path)}"


def _normalize(path: str) -> str:
    """Normalize a path: `/a.md` and `./a.md` are `a.md`."""
    pieces = [piece for piece in path.strip().split("/") if piece not in ("", ".")]
    if not pieces or ".." in pieces:
        raise ToolError(f"`{path}` is not a valid path; write it like `notes.md` or `notes/rome.md`")
    return "/".join(pieces)


TODOS_KEY = "todos"
"""Prefix of the key of the to-do list in the run's values; `:` and the name of the agent follow."""

GENERAL_PURPOSE = "general-purpose"
"""The name of the sub-agent that `deep_agent` adds; it has the same tools."""

_INSTRUCTIONS = """\
For work of several steps, keep a to-do list with `write_todos`: mark a step as in progress before you start it, and \
as completed when it is done. Delegate independent work to sub-agents with `task`; you can call it several times \
at once for tasks that do not depend on one another. A sub-agent sees only the description you give it, and you see \
only its answer, so say what it needs to know and what its answer must contain."""
_ABOUT_FILES = """\
You and your sub-agents share a scratch space of files (`ls`, `read_file`, `write_file`, `edit_file`). Write long \
texts, and what you need later, to files, and refer to a file instead of repeating its content."""
_GENERAL = """\
You work on one task on your own and cannot ask questions. Complete the task, and answer with everything that the \
agent that assigned it needs to know."""
_MARKS = {"pending": " ", "in_progress": ">", "completed": "x"}


@dataclass
class Todo:
    """An item of the to-do list."""

    content: str
    """The task."""
    status: Literal["pending", "in_progress", "completed"] = "pending"
    """Its status."""


@tool
async def write_todos(ctx: RunContext[Any], todos: list[Todo]) -> str:
    """Write the to-do list. Give the whole list each time: it replaces the previous one."""
    ctx.values.set(f"{TODOS_KEY}:{ctx.agent}", todos)
    return "\n".join(f"[{_MARKS[todo.status]}] {todo.content}" for todo in todos) or "The list is empty."


class _Task(Struct):
    subagent: str
    description: str


class TaskTool:
    """The tool `task`: a sub-agent works on a description, with a history of its own."""

    def __init__(
        self, sub_agents: Sequence[BaseAgent[Any, Any]], limits: Limits | None, helper: Agent[Any, Any] | None = None
    ) -> None:
        self.sub_agents = tuple(sub_agents)
        self.limits = limits
        self.helper = helper
        """The general-purpose sub-agent, if there is one."""
        self.agents = {agent.name: agent for agent in sub_agents}
        if helper is not None:
            self.agents[GENERAL_PURPOSE] = helper
        self._tools = {name: agent.as_tool(limits=limits) for name, agent in self.agents.items()}
        described = "\n".join(f"- {name}: {agent.description}" for name, agent in self.agents.items())
        names = {"type": "string", "enum": [*self.agents], "description": "The sub-agent for the task."}
        task = {
            "type": "string",
            "description": "The task, all information it needs, and what the answer must contain.",
        }
        self.spec = ToolSpec(
            "task",
            f"Give a task to a sub-agent; its answer is the result. The sub-agents:\n{described}",
            object_schema({"subagent": names, "description": task}),
            strict=True,
        )

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Run the named sub-agent."""
        try:
            task = msgspec.json.decode(arguments, type=_Task)
        except msgspec.MsgspecError as error:
            return ToolResult(f"The arguments of `task` do not fit: {error}.", is_error=True)
        agent = self._tools.get(task.subagent)
        if agent is None:
            known = quote_names([*self._tools])
            hint = nearest(task.subagent, self._tools) or "."
            return ToolResult(f"There is no sub-agent `{task.subagent}`; there are: {known}{hint}", is_error=True)
        return await agent.call(ctx, msgspec.json.encode({"request": task.description}).decode())


_SHARED = (
    *("model", "model_settings", "max_turns", "on_max_turns", "concurrent_tools", "max_parallel_tools"),
    *("middleware", "hooks", "compaction", "input_guardrails"),
)
"""The options that the general-purpose sub-agent has from the agent that it helps."""


class DeepAgent(Agent[Any, Any]):
    """An agent with a `task` tool, whose general-purpose sub-agent has its tools and options."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "tools", tuple([self._with_helper(entry) for entry in self.tools]))
        # The checks of the options may have read the tools.
        vars(self).pop("_own_tools", None)

    def _with_helper(self, entry: Any) -> Any:
        """Return a tool; in the `task` tool, the helper is made of the present options."""
        if not isinstance(entry, TaskTool) or entry.helper is None:
            return entry
        tools = [each for each in self.tools if each is not write_todos and not isinstance(each, TaskTool)]
        options: dict[str, Any] = {name: getattr(self, name) for name in _SHARED}
        # Checks of a typed answer could not read the helper's, which is text.
        checks = self.output_guardrails if self._output_parser is None else ()
        helper = entry.helper.clone(
            name=f"{self.name}.general_purpose", tools=tools, output_guardrails=checks, **options
        )
        return TaskTool(entry.sub_agents, entry.limits, helper)

    def inner_agents(self) -> tuple[BaseAgent[Any, Any], ...]:
        """Return the agents that run inside this one: agent tools and the sub-agents for tasks."""
        tasked = [agent for entry in self.tools if isinstance(entry, TaskTool) for agent in entry.agents.values()]
        return tuple(dict.fromkeys([*super().inner_agents(), *tasked]))


@check_arguments
def deep_agent(
    model: Model | str | None = None,
    tools: Sequence[Tool | Callable[..., Any]] = (),
    sub_agents: Sequence[BaseAgent[Any, Any]] = (),
    *,
    name: str = "DeepAgent",
    description: str = "",
    instructions: str = "",
    files: bool = False,
    general_purpose: bool = True,
    task_limits: Limits | None = None,
    max_turns: int = 50,
) -> Agent[Any, Any]:
    """Create an agent for long tasks, with a to-do list and isolated sub-agents.

    Set other options of `Agent` with `.clone(…)`. The general-purpose sub-agent has the tools, model, settings, hooks,
    middleware, guardrails, compaction and limits on turns of the agent, also those given to `clone`; but if the agent
    has an `output_type`, not its output guardrails, because the sub-agent answers with text.

    Args:
        model: The model; by default the runner's.
        tools: Tools of the agent and of its general-purpose sub-agent.
        sub_agents: Agents that it can give tasks to with the tool `task`.
        name: The name of the agent.
        description: The description for models that may transfer to it.
        instructions: Your instructions; those about to-do list and tasks are added.
        files: Whether to add tools for scratch files, which are kept in the run's values.
        general_purpose: Whether to add a sub-agent with the same tools.
        task_limits: The limits of each task.
        max_turns: Maximum number of turns of the agent.

    Raises:
        SetupError: Two sub-agents have the same name, or there is none.
    """
    own = [*tools, *(scratch_file_tools() if files else ())]
    names = [agent.name for agent in sub_agents]
    if len(set(names)) < len(names) or GENERAL_PURPOSE in names:
        taken = [GENERAL_PURPOSE, *names]
        raise SetupError(f"`{name}` has sub-agents of the same name: {quote_names(taken)}; give each a name of its own")
    if not names and not general_purpose:
        raise SetupError(f"`{name}` has no sub-agents for tasks; give sub_agents=[…], or general_purpose=True")
    helper = None
    if general_purpose:
        helper = Agent(
            GENERAL_PURPOSE,
            description="Does any task with the same tools.",
            instructions=f"{_GENERAL}\n\n{_ABOUT_FILES}" if files else _GENERAL,
        )
    about = [instructions, _INSTRUCTIONS, _ABOUT_FILES if files else ""]
    return DeepAgent(
        name,
        description=description,
        instructions="\n\n".join(filter(None, about)),
        model=model,
        tools=[write_todos, TaskTool(sub_agents, task_limits, helper), *own],
        max_turns=max_turns,
    )
