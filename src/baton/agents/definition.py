"""What an agent that asks a model is made of. What it does with the floor is in `conversation`."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from types import FunctionType, MethodType
from typing import Any, Literal, Self, TypeAlias, cast

from typing_extensions import TypeVar

from ..errors import SetupError, check_choice
from ..handoffs import Handoff
from ..messages import ToolSpec
from ..models import Model, ModelSettings, resolve_model
from ..tools import FunctionTool, Tool, Toolset, tool, unwrap_tool
from .agent_tool import AgentTool
from .base import (
    Accepts,
    AgentContext,
    BaseAgent,
    HistoryPolicy,
    check_agents,
    check_examples,
    check_name,
    to_handoffs,
)
from .hooks import AgentHooks
from .output import OutputParser
from .toolbox import ToolTable

C = TypeVar("C", default=Any)
Out = TypeVar("Out", default=str, covariant=True)

Instructions: TypeAlias = str | Callable[[AgentContext[C]], str | Awaitable[str]]


@dataclass(frozen=True, eq=False, repr=False)
class AgentWithTools(BaseAgent[C, Out]):
    """What one can say about any agent that has instructions, tools and people to hand over to."""

    name: str
    _: KW_ONLY
    description: str = ""
    """What other agents are told about it when they choose whom to transfer to."""
    examples: Sequence[str] = ()
    """Questions that are for this agent: other agents are shown them with its description."""
    instructions: Instructions[C] = ""
    template: bool = False
    """Whether `{name}` in the instructions is replaced by the value of that name, where there is one."""
    tools: Sequence[Tool | Callable[..., Any] | Toolset] = ()
    concurrent_tools: bool = True
    sub_agents: Sequence[BaseAgent[Any, Any]] = ()
    handoffs: Sequence[BaseAgent[Any, Any] | Handoff | str] = ()
    disallow_transfer_to_parent: bool = False
    exit_tool: bool = False
    """Whether the model may end the whole run with `exit(final_result)`."""
    accepts: Accepts | None = None
    """Has a say in whether the agent takes a conversation: `(ctx, payload) -> True` or a reason why not."""
    hooks: AgentHooks | None = None

    def __post_init__(self) -> None:
        check_name(self.name, type(self).__name__)
        for what in ("tools", "sub_agents", "handoffs"):
            given: object = getattr(self, what)
            if isinstance(given, str) or not isinstance(given, Sequence):
                raise SetupError(f"`{self.name}` has {what}={given!r}; give a list")
        object.__setattr__(self, "examples", check_examples(self.name, self.examples))
        object.__setattr__(self, "sub_agents", check_agents(self.name, self.sub_agents))
        object.__setattr__(self, "handoffs", to_handoffs(self.name, self.handoffs))
        object.__setattr__(self, "tools", tuple(_as_tool(self.name, entry) for entry in self.tools))

    def clone(self, **changes: Any) -> Self:
        """The same agent with some things changed."""
        return replace(self, **changes)

    @cached_property
    def _tool_table(self) -> ToolTable:
        """The agent's tools by name, compiled once; without those of its sources."""
        return ToolTable(self.name, self._own_tools, has_exit=self.exit_tool)

    @cached_property
    def _toolsets(self) -> tuple[Toolset, ...]:
        """Where more tools come from while a run lasts."""
        return tuple([entry for entry in self.tools if isinstance(entry, Toolset)])

    @cached_property
    def _own_tools(self) -> tuple[Tool, ...]:
        return tuple([cast("Tool", entry) for entry in self.tools if not isinstance(entry, Toolset)])

    def _tool_specs(self) -> tuple[ToolSpec, ...]:
        """The agent's own tools, as its model sees them."""
        return self._tool_table.specs

    def _referenced_agents(self) -> tuple[BaseAgent[Any, Any], ...]:
        """Agents that the agent's functions refer to, and so may return."""
        functions = [unwrap_tool(entry) for entry in self._own_tools]
        named: list[Any] = [thing for each in functions if isinstance(each, FunctionTool) for thing in each.mentioned()]
        return tuple(cast("list[BaseAgent[Any, Any]]", [thing for thing in named if isinstance(thing, BaseAgent)]))

    def inner_agents(self) -> tuple[BaseAgent[Any, Any], ...]:
        """The agents among its tools."""
        bottoms = [unwrap_tool(entry) for entry in self._own_tools]
        return tuple(dict.fromkeys(each.agent for each in bottoms if isinstance(each, AgentTool)))


@dataclass(frozen=True, eq=False, repr=False)
class AgentDefinition(AgentWithTools[C, Out]):
    """Everything one can say about an agent that asks a model, turn by turn."""

    _: KW_ONLY
    model: Model | str | None = None
    """A model, a string such as "openai:gpt-5", or None for the runner's."""
    model_settings: ModelSettings | None = None
    tool_choice: Literal["auto", "required", "none"] | str = "auto"
    """What the first turn must do: any of these or the name of one tool. Later turns are "auto"."""
    output_type: type[Out] = cast("type[Out]", str)
    output_key: str | None = None
    """The name under which the answer is kept in the run's values."""
    max_turns: int = 20
    on_max_turns: Literal["answer", "error"] = "answer"
    """At the last turn: ask once more for an answer without tools, or fail at once."""
    history: HistoryPolicy | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_turns < 1:
            raise SetupError(f"`{self.name}` has max_turns={self.max_turns}; an agent needs at least one turn")
        check_choice(f"on_limit of `{self.name}`", self.on_max_turns, ("answer", "error"))

    @cached_property
    def _output_parser(self) -> OutputParser | None:
        """What turns an answer into the output type; None if the answer is plain text."""
        return None if cast(Any, self.output_type) is str else OutputParser(self.name, self.output_type)

    @cached_property
    def _model(self) -> Model | None:
        """The agent's model, if it names one."""
        return None if self.model is None else resolve_model(self.model, wanted_by=self.name)


def _as_tool(owner: str, entry: Any) -> Tool | Toolset:
    if isinstance(entry, BaseAgent):
        raise SetupError(
            f"`{owner}` has the agent {entry!r} in tools; put it into sub_agents or handoffs, or give its as_tool()"
        )
    # Asked before Tool: that is a protocol with a property, and looking at it compiles the schema.
    if isinstance(entry, FunctionTool):
        return cast("Tool", entry)
    if isinstance(entry, FunctionType | MethodType):
        return cast("Tool", tool(entry))
    if isinstance(entry, Tool | Toolset):
        return entry
    if callable(entry):
        return tool(entry)
    raise SetupError(f"`{owner}` has {entry!r} in tools; give a function or something made with @tool")
