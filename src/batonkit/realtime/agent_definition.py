"""The definition of realtime agents, and the configuration that a model gets for one."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, cast

from msgspec import Struct
from typing_extensions import TypeVar

from .._checks import check_arguments, suggest_clone
from .._wording import type_of
from ..agents import AgentContext
from ..agents.compiled import (
    build_instructions,
    current_tool_table,
    disabled_handoffs,
    disabled_tools,
    with_task,
)
from ..agents.composition import calls_for
from ..agents.definition import AgentWithTools, ToolTable
from ..context import RunContext
from ..context.run_context import InterruptCheck
from ..errors import SetupError
from ..handoffs import Handoff
from ..handoffs.tasks import TaskTools
from ..log import Origin, ValueChanges, keys
from ..team.follow import TeamFlow
from ..tools import Tool
from ..tools.tool_guardrails import GuardrailFunction, to_guardrails
from .protocol import RealtimeModel
from .voice_settings import RealtimeSettings, SessionConfig

C = TypeVar("C", default=Any)


@check_arguments
@suggest_clone
@dataclass(frozen=True, eq=False, repr=False)
class RealtimeDefinition(AgentWithTools[C, str]):
    """The fields of a realtime agent, without its behaviour."""

    _: KW_ONLY
    voice: str | None = None
    """Voice of the agent; None is the session's. Providers keep the first voice that was heard."""
    tool_choice: str = "auto"
    """"auto", "none", "required" or the name of one tool."""
    output_guardrails: Sequence[GuardrailFunction] = ()
    """Checks of `(ctx, transcript so far)` while the agent speaks; a rejection stops the response."""

    @property
    def is_dynamic(self) -> bool:
        """True if instructions or tools can change during a session."""
        has_dynamic_tools = bool(self._toolsets or self._tool_table.conditional)
        return has_dynamic_tools or self.template or not isinstance(self.instructions, str)

    @property
    def _stays_active(self) -> bool:
        return True

    def __post_init__(self) -> None:
        super().__post_init__()
        (checked,) = to_guardrails(f"`{self.name}`", output_guardrails=self.output_guardrails)
        object.__setattr__(self, "output_guardrails", checked)
        for edge in self._edges():
            self._reject_unsupported_options(edge)

    def _reject_unsupported_options(self, edge: Handoff) -> None:
        """Raise SetupError if a handoff has an option that realtime sessions do not support."""
        unsupported = ["input_filter", "history"]
        if edge.until != "finished":
            # Control returns only from a task: an agent's words do not end its activation.
            unsupported.append("return_to")
        for option in unsupported:
            if getattr(edge, option) is not None:
                raise SetupError(
                    f"`{self.name}` has a handoff to `{edge.target}` with {option}=…, which realtime sessions do "
                    "not support: the model keeps its history, and an agent stays active until it transfers or "
                    'finishes a task (until="finished")'
                )

    def as_tool(self, *args: Any, **options: Any) -> Tool:
        """Raise SetupError: a realtime agent cannot be a tool.

        Args:
            *args: Ignored.
            **options: Ignored.
        """
        raise SetupError(f"`{self.name}` is a RealtimeAgent and cannot be a tool; hand off to it, or make it an Agent")


class PreparedAgent(Struct, frozen=True):
    """A validated configuration for an agent, and the tools in it."""

    agent: RealtimeDefinition[Any]
    config: SessionConfig
    tool_table: ToolTable
    changes: ValueChanges | None = None
    """Changes that its instructions and conditions made to the run's values."""
    task: TaskTools | None = None
    """The tools with which it ends its task, if it works on one."""


async def prepare_agent(
    agent: RealtimeDefinition[Any], ctx: AgentContext[Any], *, model: RealtimeModel, settings: RealtimeSettings
) -> PreparedAgent:
    """Build the configuration of an agent.

    Raises:
        SetupError: The model does not accept the configuration.
    """
    key = keys.inside(ctx._scope, "ready")
    with InterruptCheck(ctx, "the configuration"):
        tool_table = await current_tool_table(agent, ctx, key)
        instructions = await build_instructions(ctx, agent.instructions, template=agent.template)
        disabled = await disabled_handoffs(ctx, agent, key) if ctx._routes.conditional else ()
        has_conditions = bool(tool_table.conditional)
        hidden = await disabled_tools(ctx, agent, key, tool_table) if has_conditions else ()
    tools = tool_table.enabled_specs(hidden) + ctx._routes.enabled_specs(disabled)
    tools, instructions = with_task(ctx, tool_table, tools, instructions)
    voice = agent.voice or settings.voice
    config = SessionConfig(agent.name, instructions, tools, agent.tool_choice, voice, settings)
    model.check(config)
    return PreparedAgent(agent, config, tool_table, ctx._take_changes(), ctx._task)


async def prepare_target(
    target: str, ctx: RunContext[Any], caller: AgentContext[Any], *, model: RealtimeModel, settings: RealtimeSettings
) -> PreparedAgent:
    """Build the configuration of the target of a transfer.

    Raises:
        SetupError: The target is not a realtime agent, or the model does not accept its configuration.
    """
    flow = cast(TeamFlow, caller._flow)
    member = flow.resolve(flow.team.members[caller.agent], target)
    if not isinstance(member.agent, RealtimeDefinition):
        raise SetupError(f"`{target}` is {type_of(member.agent)}, not a RealtimeAgent; use its as_tool()")
    origin = Origin(keys.inside(ctx._scope, "ready"), target, caller._origin)
    ready = AgentContext(
        caller._run,
        origin,
        origin.id,
        _history=caller._history,
        _view=caller,
        _routes=member.routes,
        _options=caller._options,
        _turn_start=0,
        _flow=caller._flow,
        _calls=calls_for(member.agent, caller._options),
    )
    return await prepare_agent(member.agent, ready, model=model, settings=settings)
