"""The options of agents that call a model, their typed output, and their compiled tools."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from types import FunctionType, MethodType
from typing import Any, Literal, Never, Self, TypeAlias, cast

import msgspec
from typing_extensions import TypeForm, TypeVar

from .._checks import check_arguments, check_callback, check_choice, check_positive, suggest_clone
from .._wording import show
from ..context import RunContext
from ..errors import SetupError
from ..handoffs import Handoff
from ..handoffs.input_type import IncompleteTypeError, TypedJson, describe_problems, strict_schema
from ..log.entries import EXIT_TOOL as EXIT_TOOL
from ..messages import Message, ToolCall, ToolSpec, object_schema
from ..messages.messages import INVALID_JSON
from ..models import Model, ModelSettings, OutputSchema, resolve_model
from ..tools import FunctionTool, Tool, ToolFunction, Toolset, tool
from ..tools.base_tool import tool_condition, unwrap_tool
from ..tools.function import referenced_objects
from ..tools.once import tool_effect
from ..tools.tool_guardrails import GuardrailFunction, GuardrailReturn, to_guardrails
from .agent_context import AgentContext, HistoryFunction, HistoryPolicy, compile_history
from .agent_tool import AgentTool
from .base_agent import Accepts, BaseAgent, C, Out, check_agents, check_examples, check_name, to_handoffs
from .compaction import Compaction, check_compaction
from .hooks import AgentHooks
from .middleware import Middleware, check_middleware
from .tool_use import ToolUseBehavior, check_behavior

_FENCED = r"(?s)^\s*```(?:json)?\s*\n(.*?)\n?```\s*$"
_WRAPPER = "response"


class OutputParser(TypedJson):
    """Validates answers. A type that is not a JSON object is wrapped in one."""

    def __init__(self, agent: str, output_type: Any) -> None:
        super().__init__(output_type, f"the output_type of `{agent}`", _WRAPPER)
        name = re.sub(r"[^A-Za-z0-9_-]+", "_", self.type_name)[:64] or "output"
        try:
            strict = strict_schema(self.json_schema, f"the output type of `{agent}`")
            self.schema = OutputSchema(name, strict, strict=True)
        except SetupError:
            self.schema = OutputSchema(name, self.json_schema)

    def parse(self, text: str) -> Any:
        """Validate an answer. Raises ValueError that lists the problems."""
        from pydantic import ValidationError

        fenced = re.match(_FENCED, text)
        try:
            value: Any = msgspec.json.decode(fenced.group(1) if fenced else text)
        except INVALID_JSON as error:
            raise ValueError(f"it is not JSON ({error})") from None
        if self.is_wrapped and isinstance(value, dict) and _WRAPPER in value:
            value = cast("dict[str, Any]", value)[_WRAPPER]
        try:
            # Validated as JSON, so that a date may be a string and a tuple a list.
            return self.adapter.validate_json(msgspec.json.encode(value))
        except ValidationError as error:
            raise ValueError(describe_problems(error, "the answer")) from None

    def dump(self, value: Any) -> Any:
        """Convert a value to JSON data."""
        return self.adapter.dump_python(value, mode="json")


_EXIT_SPEC = ToolSpec(
    EXIT_TOOL,
    "End the whole task now with this final result. Use it only when nothing is left to do.",
    object_schema({"final_result": {"type": "string", "description": "The final result, as the user will read it."}}),
    strict=True,
)


class ToolTable:
    """The compiled tools of one agent."""

    __slots__ = ("_with_effect", "by_name", "conditional", "has_exit", "names", "needs_context", "specs")

    def __init__(self, owner: str, tools: Sequence[Tool], *, has_exit: bool) -> None:
        self.by_name = {each.spec.name: each for each in tools}
        self.needs_context = required_contexts(tools)
        self.has_exit = has_exit
        specs = [each.spec for each in tools]
        if has_exit:
            specs.append(_EXIT_SPEC)
        seen: set[str] = set()
        for spec in specs:
            if spec.name in seen:
                raise SetupError(f"`{owner}` has two tools called `{spec.name}`; give one of them another name")
            seen.add(spec.name)
        self._with_effect = frozenset(each.spec.name for each in tools if tool_effect(each) != "read")
        self.specs = tuple(specs)
        self.names = tuple(spec.name for spec in specs)
        conditions = {each.spec.name: tool_condition(each) for each in tools}
        self.conditional = {name: each for name, each in conditions.items() if each is not True}
        """The `is_enabled` of tools that have one, by name."""

    def enabled_specs(self, disabled: Sequence[str]) -> tuple[ToolSpec, ...]:
        """Return the specs without those of disabled tools."""
        return self.specs if not disabled else tuple(spec for spec in self.specs if spec.name not in disabled)

    def only_reads(self, calls: Sequence[ToolCall]) -> bool:
        """Return whether none of these calls has an effect outside."""
        return not any(call.name in self._with_effect for call in calls)


def required_contexts(tools: Iterable[Tool]) -> dict[str, Any]:
    """Return the type of the context object that a tool needs, by name, for those that need one."""
    needs = dict[str, Any]()
    for each in map(unwrap_tool, tools):
        if isinstance(each, FunctionTool) and each._required_context is not None:
            needs[each.name] = each._required_context
    return needs


def check_context(owner: str, needs: Mapping[str, Any], context: object) -> None:
    """Raise SetupError if a tool of an agent needs a context object, and the run has none."""
    if context is not None or not needs:
        return
    name, kind = next(iter(needs.items()))
    shown = getattr(kind, "__name__", kind)
    raise SetupError(
        f"tool `{name}` of `{owner}` takes RunContext[{shown}], but the run has no context; give one: "
        f"run(…, context={shown}(…)) or Runner(context_factory=…), or annotate RunContext[{shown} | None]"
    )


Ctx = TypeVar("Ctx", default=Any)

InputCheck: TypeAlias = Callable[[RunContext[Ctx], Sequence[Message]], GuardrailReturn | Awaitable[GuardrailReturn]]
Instructions: TypeAlias = str | Callable[[AgentContext[Ctx]], str | Awaitable[str]]


# Its subclasses are dataclasses too, whose `__init__` takes these fields as well.
@suggest_clone
@dataclass(init=False, frozen=True, eq=False, repr=False)
class AgentWithTools(BaseAgent[C, Out]):
    """The options of any agent that has instructions, tools and handoffs."""

    # Defaults that say nothing about C and Out: a type checker infers both from what an agent has, and a plain `()`
    # would make them unknown.
    NO_TOOLS = cast("Sequence[Tool[C]]", ())
    NO_HANDOFFS = cast("Sequence[Handoff[C, Never]]", ())
    NO_AGENTS = cast("Sequence[BaseAgent[C, Never]]", ())
    NO_MIDDLEWARE = cast("Sequence[Middleware[C]]", ())

    name: str
    """The name, unique in the team."""
    _: KW_ONLY
    description: str = ""
    """Tells other agents when to transfer to this one."""
    instructions: Instructions[C] = ""
    """The system prompt, or a function of the context that returns it, sync or async."""
    tools: Sequence[Tool[C] | Callable[..., BaseAgent[Any, Out]] | ToolFunction | Toolset] = NO_TOOLS
    """Tools, functions to make tools of, and toolsets."""
    handoffs: Sequence[BaseAgent[C, Out] | Handoff[C, Out] | str] = NO_HANDOFFS
    """Agents, handoffs or names of agents it can transfer to, each with a tool of its own."""
    sub_agents: Sequence[BaseAgent[C, Out]] = NO_AGENTS
    """Agents it can transfer to with one shared tool, and that can transfer back."""
    hooks: AgentHooks[C] | None = None
    """Lifecycle callbacks."""
    middleware: Sequence[Middleware[C]] = NO_MIDDLEWARE
    """Code around its model calls, tool calls and activations, outermost first."""
    concurrent_tools: bool = True
    """True if the tool calls of one response run concurrently."""
    max_parallel_tools: int | None = None
    """Maximum number of tool calls of one response that run at once; None for no limit."""
    accepts: Accepts[C] | None = None
    """Decides whether the agent takes a conversation: `(ctx, input) -> True`, or a reason why not."""
    examples: Sequence[str] = ()
    """Example questions that other agents read with the description."""
    template: bool = False
    """True if `{name}` in the instructions is replaced with the run's value of that name, if there is one."""
    exit_tool: bool = False
    """True if the model may end the whole run with `exit(final_result)`."""
    disallow_transfer_to_parent: bool = False
    """True if transfers to its parent are forbidden."""

    del NO_TOOLS, NO_HANDOFFS, NO_AGENTS, NO_MIDDLEWARE

    def __post_init__(self) -> None:
        check_name(self.name, type(self).__name__)
        for field in ("tools", "sub_agents", "handoffs"):
            value: object = getattr(self, field)
            if isinstance(value, str) or not isinstance(value, Sequence):
                raise SetupError(f"`{self.name}` has {field}={show(value)}; give a list")
        if not isinstance(self.instructions, str):
            check_callback(f"instructions of `{self.name}`", self.instructions, "ctx")
        if self.accepts is not None:
            check_callback(f"accepts of `{self.name}`", self.accepts, "ctx", "input")
        check_positive(f"max_parallel_tools of `{self.name}`", self.max_parallel_tools)
        object.__setattr__(self, "examples", check_examples(self.name, self.examples))
        object.__setattr__(self, "sub_agents", check_agents(self.name, self.sub_agents))
        object.__setattr__(self, "handoffs", to_handoffs(self.name, self.handoffs))
        object.__setattr__(self, "tools", tuple(to_tool(self.name, entry) for entry in self.tools))
        object.__setattr__(self, "middleware", check_middleware(f"`{self.name}`", self.middleware))

    def clone(self, **changes: Any) -> Self:
        """Return a copy with some options changed.

        Args:
            **changes: Keyword arguments of the class.
        """
        return replace(self, **changes)

    @cached_property
    def _tool_table(self) -> ToolTable:
        """The agent's own tools, without those of its toolsets."""
        return ToolTable(self.name, self._own_tools, has_exit=self.exit_tool)

    @cached_property
    def _toolsets(self) -> tuple[Toolset, ...]:
        return tuple([entry for entry in self.tools if isinstance(entry, Toolset)])

    @cached_property
    def _own_tools(self) -> tuple[Tool, ...]:
        return tuple([cast("Tool", entry) for entry in self.tools if not isinstance(entry, Toolset)])

    @cached_property
    def _output_parser(self) -> OutputParser | None:
        """Parses the answer, if the agent has an output type."""
        return None

    def _tool_specs(self) -> tuple[ToolSpec, ...]:
        return self._tool_table.specs

    def _required_contexts(self) -> dict[str, Any]:
        return required_contexts(self._own_tools)

    def _referenced_agents(self) -> tuple[BaseAgent[Any, Any], ...]:
        functions = [unwrap_tool(entry) for entry in self._own_tools]
        found: list[Any] = [
            thing for each in functions if isinstance(each, FunctionTool) for thing in referenced_objects(each.function)
        ]
        return tuple(cast("list[BaseAgent[Any, Any]]", [thing for thing in found if isinstance(thing, BaseAgent)]))

    def inner_agents(self) -> tuple[BaseAgent[Any, Any], ...]:
        """Return the agents among its tools."""
        tools = [unwrap_tool(entry) for entry in self._own_tools]
        return tuple(dict.fromkeys(each.agent for each in tools if isinstance(each, AgentTool)))

    def _inner_policies(self) -> tuple[str | HistoryFunction, ...]:
        tools = [unwrap_tool(entry) for entry in self._own_tools]
        return tuple([each._projection for each in tools if isinstance(each, AgentTool) and each._projection])


@check_arguments
@suggest_clone
@dataclass(frozen=True, eq=False, repr=False)
class AgentDefinition(AgentWithTools[C, Out]):
    """The options of `Agent`."""

    NO_CHECKS = cast("Sequence[InputCheck[C]]", ())

    _: KW_ONLY
    model: Model | str | None = None
    """A model, a string such as `"openai:gpt-5"`, or None for the runner's model."""
    model_settings: ModelSettings | None = None
    """Settings that override the runner's."""
    # Not a cast: type checkers infer `str` from it, beside the types of the agents that it can transfer to.
    output_type: TypeForm[Out] = str  # pyright: ignore[reportAssignmentType]
    """The type of the answer: any type that pydantic can validate, including unions; `str` or None for text."""
    input_guardrails: Sequence[InputCheck[C]] = NO_CHECKS
    """Checks `(ctx, messages)` of the conversation that it reads."""
    output_guardrails: Sequence[GuardrailFunction] = ()
    """Checks `(ctx, output)` of its answer."""
    tool_choice: Literal["auto", "required", "none"] | str = "auto"
    """Requirement for the first turn: one of these, or the name of a tool to call. Later turns are `"auto"`."""
    max_turns: int = 20
    """Maximum number of model calls per activation."""
    on_max_turns: Literal["answer", "error"] = "answer"
    """After the last turn: `"answer"` asks once more without tools, `"error"` fails at once."""
    tool_use_behavior: ToolUseBehavior[C] = "run_again"
    """The step after tools: ask the model again, or stop with an answer."""
    history: HistoryPolicy | None = None
    """The way it reads the messages of agents that were active before it."""
    compaction: Compaction | None = None
    """When and how long histories that it reads are compacted; by default as the runner says."""
    output_key: str | None = None
    """The key under which the answer is stored in the run's values."""

    del NO_CHECKS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_turns < 1:
            raise SetupError(f"`{self.name}` has max_turns={self.max_turns}; an agent needs at least one turn")
        check_choice(f"on_max_turns of `{self.name}`", self.on_max_turns, ("answer", "error"))
        if self.tool_use_behavior != "run_again":
            check_behavior(self.name, self.tool_use_behavior, self._known_tools)
        if self.history is not None:
            compile_history(self.history)
        check_compaction(f"`{self.name}`", self.compaction)
        with suppress(IncompleteTypeError):
            _ = self._output_parser
        if self.model is not None and not isinstance(self.model, str):
            resolve_model(self.model, wanted_by=self.name)
        if self.input_guardrails or self.output_guardrails:
            checks: Sequence[GuardrailFunction] = self.input_guardrails
            inputs, outputs = to_guardrails(
                f"`{self.name}`", input_guardrails=checks, output_guardrails=self.output_guardrails
            )
            object.__setattr__(self, "input_guardrails", inputs)
            object.__setattr__(self, "output_guardrails", outputs)

    def _known_tools(self) -> tuple[str, ...] | None:
        """The names of its tools; None if a toolset has further ones."""
        return None if self._toolsets else tuple(map(tool_name, self._own_tools))

    @cached_property
    def _output_parser(self) -> OutputParser | None:
        kind = cast(Any, self.output_type)
        return None if kind is str or kind is None else OutputParser(self.name, kind)

    @cached_property
    def _model(self) -> Model | None:
        return None if self.model is None else resolve_model(self.model, wanted_by=self.name)


def tool_name(tool: Tool) -> str:
    """Return the name of a tool without compiling its schema."""
    innermost = unwrap_tool(tool)
    return innermost.name if isinstance(innermost, FunctionTool) else tool.spec.name


def to_tool(owner: str, entry: Any) -> Tool | Toolset:
    """Convert an entry of `tools`. Raises SetupError if it is not a tool."""
    if isinstance(entry, BaseAgent):
        raise SetupError(
            f"`{owner}` has the agent {entry!r} in tools; put it into sub_agents or handoffs, or use its as_tool()"
        )
    # Checked before Tool: isinstance with a protocol that has a property compiles the schema.
    if isinstance(entry, FunctionTool):
        return cast("Tool", entry)
    if isinstance(entry, FunctionType | MethodType):
        return cast("Tool", tool(entry))
    if isinstance(entry, Tool | Toolset):
        return cast("Tool | Toolset", entry)
    if callable(entry):
        return tool(entry)
    raise SetupError(f"`{owner}` has {show(entry)} in tools; give a function, a tool or a toolset")
