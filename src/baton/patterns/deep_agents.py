"""One agent for long work: it keeps a list of what to do, gives tasks to agents of their own, and may keep files.

Files that exist only in a run: each is one of its values, logged, resumed and shared like any other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ..agents import Agent, BaseAgent
from ..context import Limits, RunContext, Values
from ..errors import SetupError, ToolError, quote_names
from ..messages import ToolSpec
from ..models import Model
from ..tools import FunctionTool, Tool, ToolResult, tool

FILE_KEY = "file"
"""With `:` and the path: the value in which a scratch file of `deep_agent` is kept, as text."""

_MOST_LINES = 2000


@tool
async def ls(ctx: RunContext[Any]) -> str:
    """List the files in the scratch space, with their length in characters."""
    files = paths_in(ctx.values)
    return "\n".join(f"{path} ({len(ctx.values[_key(path)])})" for path in files) or "There are no files yet."


@tool
async def read_file(ctx: RunContext[Any], path: str, offset: int = 0, limit: int = _MOST_LINES) -> str:
    """Read a file of the scratch space.

    Args:
        path: Which file.
        offset: How many lines to leave out at the beginning.
        limit: How many lines to read at most.
    """
    lines = _text(ctx, path).splitlines()
    shown = lines[max(offset, 0) : max(offset, 0) + max(limit, 1)]
    if not shown:
        return f"(`{path}` has {len(lines)} lines; there is nothing after line {offset})" if lines else "(empty)"
    left = len(lines) - max(offset, 0) - len(shown)
    return "\n".join([*shown, f"({left} more lines)"] if left > 0 else shown)


@tool
async def write_file(ctx: RunContext[Any], path: str, content: str) -> str:
    """Write a file of the scratch space; what was in it is replaced.

    Args:
        path: Which file, for instance `notes/rome.md`.
        content: All of its text.
    """
    ctx.values.set(_key(path), content)
    return f"wrote `{_clean(path)}`, {len(content)} characters"


@tool
async def edit_file(ctx: RunContext[Any], path: str, old: str, new: str, replace_all: bool = False) -> str:
    """Replace text in a file of the scratch space.

    Args:
        path: Which file.
        old: The text to replace, exactly as it stands there; it must occur once, unless all are to be replaced.
        new: What to put in its place.
        replace_all: Whether to replace it wherever it occurs.
    """
    text = _text(ctx, path)
    found = text.count(old) if old else 0
    if found == 0:
        raise ToolError(f"`{path}` does not contain that text; read it first")
    if found > 1 and not replace_all:
        raise ToolError(f"`{path}` contains that text {found} times; give more of it, or say replace_all")
    ctx.values.set(_key(path), text.replace(old, new))
    return f"replaced it {found} time{'' if found == 1 else 's'} in `{_clean(path)}`"


_TOOLS: tuple[FunctionTool[..., Any], ...] = (ls, read_file, write_file, edit_file)


def scratch_file_tools() -> tuple[Tool, ...]:
    """Tools to list, read, write and edit files that are kept in the run's values."""
    return _TOOLS


def paths_in(values: "Values | dict[str, Any]") -> list[str]:
    """The paths of the scratch files among these values."""
    return sorted(key.partition(":")[2] for key in values if key.startswith(f"{FILE_KEY}:"))


def _text(ctx: RunContext[Any], path: str) -> str:
    text = ctx.values.get(_key(path))
    if text is None:
        raise ToolError(f"there is no file `{path}`; the files are: {quote_names(paths_in(ctx.values))}")
    return str(text)


def _key(path: str) -> str:
    return f"{FILE_KEY}:{_clean(path)}"


def _clean(path: str) -> str:
    """The same file however its path is written: `/a.md`, `./a.md` and `a.md`."""
    pieces = [piece for piece in path.strip().split("/") if piece not in ("", ".")]
    if not pieces or ".." in pieces:
        raise ToolError(f"`{path}` is no path of a file here; write it like `notes.md` or `notes/rome.md`")
    return "/".join(pieces)


TODOS_KEY = "todos"
"""With `:` and the name of the agent: the value in which `deep_agent` keeps its list of what to do."""

GENERAL_PURPOSE = "general-purpose"
"""The sub-agent that `deep_agent` has besides those it is given; it has the same tools."""

_INSTRUCTIONS = """\
For work of several steps, write down with `write_todos` what is to be done, and keep it up to date: mark a step \
before you begin it and when it is done. Give work that can be done apart to a sub-agent with `task`; tasks that \
do not depend on one another may be given at once. A sub-agent knows nothing but the description you give it, \
and you see nothing but its answer, so say what it needs to know and what to answer with."""
_ABOUT_FILES = """\
You and your sub-agents share a scratch space of files (`ls`, `read_file`, `write_file`, `edit_file`). Put there \
what is long or needed later, and name the file instead of repeating it."""
_GENERAL = "You are given one task, and nobody to ask. Carry it out, and answer with all that whoever gave it needs."
_MARKS = {"pending": " ", "in_progress": ">", "completed": "x"}


@dataclass
class Todo:
    """One thing to do, and how far it is."""

    content: str
    status: Literal["pending", "in_progress", "completed"] = "pending"


@tool
async def write_todos(ctx: RunContext[Any], todos: list[Todo]) -> str:
    """Write down what is to be done, in order. Give the whole list each time: it replaces the one before.

    Args:
        todos: Everything there is to do, with what is done already.
    """
    ctx.values.set(f"{TODOS_KEY}:{ctx.agent}", todos)
    return "\n".join(f"[{_MARKS[todo.status]}] {todo.content}" for todo in todos) or "nothing is to be done"


class _Task(Struct):
    subagent: str
    description: str


class TaskTool:
    """The tool `task`: one of several agents works on a description, with a history of its own."""

    def __init__(self, agents: Mapping[str, BaseAgent[Any, Any]], limits: Limits | None) -> None:
        self.agents = dict(agents)
        self._tools = {name: agent.as_tool(limits=limits) for name, agent in agents.items()}
        described = "\n".join(f"- {name}: {agent.description}" for name, agent in agents.items())
        names = {"type": "string", "enum": [*agents], "description": "Who should do it."}
        task = {"type": "string", "description": "What to do, with all there is to know, and what to answer with."}
        self.spec = ToolSpec(
            "task",
            f"Have a task done by a sub-agent; its answer is the result. The sub-agents:\n{described}",
            {
                "type": "object",
                "properties": {"subagent": names, "description": task},
                "required": ["subagent", "description"],
                "additionalProperties": False,
            },
            strict=True,
        )

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Call the agent that is named, as a tool."""
        try:
            task = msgspec.json.decode(arguments, type=_Task)
        except msgspec.MsgspecError as error:
            return ToolResult(f"The arguments of `task` do not fit: {error}.", is_error=True)
        agent = self._tools.get(task.subagent)
        if agent is None:
            known = quote_names([*self._tools])
            return ToolResult(f"There is no sub-agent `{task.subagent}`; there are: {known}.", is_error=True)
        return await agent.call(ctx, msgspec.json.encode({"request": task.description}).decode())


class DeepAgent(Agent[Any, Any]):
    """An agent some of whose tools have agents in them."""

    def inner_agents(self) -> tuple[BaseAgent[Any, Any], ...]:
        """The agents among its tools, and those it gives tasks to."""
        tasked = [agent for entry in self.tools if isinstance(entry, TaskTool) for agent in entry.agents.values()]
        return tuple(dict.fromkeys([*super().inner_agents(), *tasked]))


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
    """An agent with `write_todos`, `task` onto isolated sub-agents, these tools, and with `files` a scratch space.

    `task_limits` are each task's share of the run's. Say what else an `Agent` can have with `.clone(…)`.
    """
    own = [*tools, *(scratch_file_tools() if files else ())]
    agents = {agent.name: agent for agent in sub_agents}
    if len(agents) < len(sub_agents) or GENERAL_PURPOSE in agents:
        taken = [GENERAL_PURPOSE, *(agent.name for agent in sub_agents)]
        raise SetupError(f"`{name}` has sub-agents of the same name: {quote_names(taken)}; give each a name of its own")
    if general_purpose:
        agents[GENERAL_PURPOSE] = Agent(
            f"{name}.general_purpose",
            description="Does any task with the same tools.",
            instructions=f"{_GENERAL}\n\n{_ABOUT_FILES}" if files else _GENERAL,
            model=model,
            tools=own,
            max_turns=max_turns,
        )
    if not agents:
        raise SetupError(f"`{name}` has nobody to give tasks to; give sub_agents=[…], or general_purpose=True")
    about = [instructions, _INSTRUCTIONS, _ABOUT_FILES if files else ""]
    return DeepAgent(
        name,
        description=description,
        instructions="\n\n".join(filter(None, about)),
        model=model,
        tools=[write_todos, TaskTool(agents, task_limits), *own],
        max_turns=max_turns,
    )
