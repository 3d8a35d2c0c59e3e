"""What an agent that asks a model is made of. What it does with the floor is in `conversation`.

Answers of a given type: the schema a model is shown, and the reading of what it wrote.

An agent's tools, compiled: by name, and as the model sees them.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from types import FunctionType, MethodType
from typing import Any, Literal, Self, TypeAlias, cast

import msgspec
from typing_extensions import TypeVar

from ..errors import SetupError, check_choice
from ..handoffs import Handoff
from ..handoffs.input import strict_schema
from ..messages import ToolCall, ToolSpec
from ..models import Model, ModelSettings, OutputSchema, resolve_model
from ..tools import FunctionTool, Tool, Toolset, tool
from ..tools.base import unwrap_tool
from ..tools.wrappers import tool_effect
from .agent_tool import AgentTool
from .base import Accepts, AgentContext, BaseAgent, HistoryPolicy, check_agents, check_examples, check_name, to_handoffs
from .hooks import AgentHooks

_FENCED = re.compile(r"^\s*```(?:json)?\s*\n(.*?)\n?```\s*$", re.DOTALL)
_WRAPPER = "response"


class OutputParser:
    """Reads answers as one type. A type that is not a JSON object is wrapped in one, as providers demand."""

    def __init__(self, agent: str, output_type: Any) -> None:
        from pydantic import PydanticUserError, TypeAdapter

        try:
            self._adapter = TypeAdapter[Any](output_type)
            schema = self._adapter.json_schema()
        except PydanticUserError as error:
            raise SetupError(f"`{agent}` has output_type={output_type!r}, which has no JSON schema: {error}") from None
        self.type_name = str(getattr(output_type, "__name__", output_type))
        self._is_wrapped = schema.get("type") != "object" and "$ref" not in schema
        if self._is_wrapped:
            definitions = schema.pop("$defs", None)
            schema = {
                "type": "object",
                "properties": {_WRAPPER: schema},
                "required": [_WRAPPER],
                "additionalProperties": False,
                **({"$defs": definitions} if definitions else {}),
            }
        name = re.sub(r"[^A-Za-z0-9_-]+", "_", self.type_name)[:64] or "output"
        self.schema = _strict_if_possible(agent, name, schema)

    def read(self, text: str) -> Any:
        """The answer as a value of the type. Raises ValueError that lists what is wrong with it."""
        from pydantic import ValidationError

        fenced = _FENCED.match(text)
        try:
            value: Any = msgspec.json.decode(fenced.group(1) if fenced else text)
        except msgspec.DecodeError as error:
            raise ValueError(f"it is not JSON ({error})") from None
        if self._is_wrapped and isinstance(value, dict) and _WRAPPER in value:
            value = cast("dict[str, Any]", value)[_WRAPPER]
        try:
            # Judged as JSON, so that a date may be a string and a tuple a list.
            return self._adapter.validate_json(msgspec.json.encode(value))
        except ValidationError as error:
            problems = (f"{'.'.join(map(str, e['loc'])) or 'the answer'}: {e['msg']}" for e in error.errors())
            raise ValueError("; ".join(problems)) from None

    def dump(self, value: Any) -> Any:
        """The value as plain JSON data."""
        return self._adapter.dump_python(value, mode="json")


def _strict_if_possible(agent: str, name: str, schema: dict[str, Any]) -> OutputSchema:
    """The schema in the form that providers hold a model to; as it is, if it says what that form cannot."""
    try:
        return OutputSchema(name, strict_schema(schema, f"the output type of `{agent}`"), strict=True)
    except SetupError:
        return OutputSchema(name, schema)


EXIT_TOOL = "exit"

_EXIT_SPEC = ToolSpec(
    EXIT_TOOL,
    "End the whole task now with this final result. Use it only when nothing is left to do for anybody.",
    {
        "type": "object",
        "properties": {
            "final_result": {"type": "string", "description": "The final result, as the user will read it."}
        },
        "required": ["final_result"],
        "additionalProperties": False,
    },
    strict=True,
)


class ToolTable:
    """The tools of one agent. `names` is what the model is told when it calls something else."""

    __slots__ = ("_acting", "by_name", "has_exit", "names", "specs")

    def __init__(self, owner: str, tools: Sequence[Tool], *, has_exit: bool) -> None:
        self.by_name: dict[str, Tool] = {}
        self.has_exit = has_exit
        specs = [each.spec for each in tools]
        if has_exit:
            specs.append(_EXIT_SPEC)
        seen: set[str] = set()
        for spec in specs:
            if spec.name in seen:
                raise SetupError(f"`{owner}` has two tools called `{spec.name}`; give one of them another name")
            seen.add(spec.name)
        for each in tools:
            self.by_name[each.spec.name] = each
        self._acting = frozenset(each.spec.name for each in tools if tool_effect(each) != "read")
        self.specs = tuple(specs)
        self.names = tuple(spec.name for spec in specs)

    def only_reads(self, calls: Sequence[ToolCall]) -> bool:
        """Whether none of these calls does anything outside: then they may be made before they are on record."""
        return not any(call.name in self._acting for call in calls)


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
