"""The definition of realtime agents, and the configuration that a model gets for one."""

import logging
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, cast

from msgspec import Struct
from typing_extensions import TypeVar

from ..agents import AgentContext
from ..agents.compiled import build_instructions, current_tool_table, disabled_handoffs
from ..agents.definition import AgentWithTools, ToolTable
from ..context import RunContext
from ..context.history import History
from ..errors import SetupError
from ..events import Origin, ValueChanges
from ..flow.follow import TeamFlow
from ..handoffs.routes import Routes
from ..tools import Tool
from ..tools.guardrails import GuardrailFunction, to_guardrails
from .protocol import RealtimeModel
from .settings import RealtimeSettings, SessionConfig

C = TypeVar("C", default=Any)
_logger = logging.getLogger("baton.realtime")


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
        return self.template or bool(self._toolsets) or not isinstance(self.instructions, str)

    def __post_init__(self) -> None:
        super().__post_init__()
        (checked,) = to_guardrails(f"`{self.name}`", output_guardrails=self.output_guardrails)
        object.__setattr__(self, "output_guardrails", checked)
        for edge in self._edges():
            for option, is_set in (
                ("input_filter", edge.input_filter is not None),
                ("history", edge.history is not None),
                ("return_to", edge.return_to is not None),
            ):
                if is_set:
                    raise SetupError(
                        f"`{self.name}` has a handoff to `{edge.target}` with {option}=…, which realtime sessions do "
                        "not support: the model keeps its history, and an agent stays active until it transfers"
                    )

    def as_tool(self, *args: Any, **options: Any) -> Tool:
        """Raise SetupError: a realtime agent cannot be a tool.

        Args:
            *args: Ignored.
            **options: Ignored.
        """
        raise SetupError(f"`{self.name}` is a RealtimeAgent and cannot be a tool; hand off to it, or make it an Agent")


def sibling_context(
    ctx: AgentContext[Any],
    *,
    origin: Origin | None = None,
    history: History | None = None,
    routes: Routes | None = None,
    turn_start: int = 0,
) -> AgentContext[Any]:
    """Copy a context, for one of its turns or for the next agent.

    Args:
        ctx: The context to copy.
        origin: Origin of the copy, if another.
        history: History of the copy, if another.
        routes: Routes of the copy, if others.
        turn_start: Index of the history entry at which the turn starts.
    """
    return AgentContext(
        ctx._run,
        origin or ctx._origin,
        history if history is not None else ctx._history,
        _FixedMessages(ctx),
        routes or ctx._routes,
        ctx._options,
        turn_start,
        ctx._flow,
    )


class _FixedMessages:
    def __init__(self, ctx: AgentContext[Any]) -> None:
        self.messages = ctx.messages


class PreparedAgent(Struct, frozen=True):
    """A validated configuration for an agent, and the tools in it."""

    agent: RealtimeDefinition[Any]
    config: SessionConfig
    tool_table: ToolTable
    changes: ValueChanges | None = None
    """Changes that its instructions and conditions made to the run's values."""


async def prepare_agent(
    agent: RealtimeDefinition[Any], ctx: AgentContext[Any], *, model: RealtimeModel, settings: RealtimeSettings
) -> PreparedAgent:
    """Build the configuration of an agent.

    Args:
        agent: The agent.
        ctx: The context of its activation.
        model: The model that validates the configuration.
        settings: Settings of the session.

    Raises:
        SetupError: The model does not accept the configuration.
    """
    tool_table = await current_tool_table(agent, ctx, f"{ctx._scope}/ready")
    instructions = await build_instructions(ctx, agent.instructions, template=agent.template)
    disabled = await disabled_handoffs(ctx, agent, f"{ctx._scope}/ready") if ctx._routes.conditional else ()
    tools = tuple([spec for spec in tool_table.specs + ctx._routes.specs if spec.name not in disabled])
    voice = agent.voice or settings.voice
    config = SessionConfig(agent.name, instructions, tools, agent.tool_choice, voice, settings)
    model.check(config)
    return PreparedAgent(agent, config, tool_table, ctx._take_changes())


async def prepare_target(
    target: str, ctx: RunContext[Any], caller: AgentContext[Any], *, model: RealtimeModel, settings: RealtimeSettings
) -> PreparedAgent | str:
    """Build the configuration of the target of a transfer.

    Args:
        target: Name of the target.
        ctx: Context of the call that requests the transfer.
        caller: Context of the active agent.
        model: The model that validates the configuration.
        settings: Settings of the session.

    Returns:
        The configuration, or the error message for the model if it could not be built.
    """
    try:
        flow = cast(TeamFlow, caller._flow)
        seat = flow.resolve(flow.team.members[caller.agent], target)
        if not isinstance(seat.agent, RealtimeDefinition):
            raise SetupError(f"`{target}` is a {type(seat.agent).__name__}, not a RealtimeAgent; use its as_tool()")
        origin = Origin(f"{ctx._scope}/ready", target, caller._origin)
        next_ctx = sibling_context(caller, origin=origin, routes=seat.routes)
        return await prepare_agent(seat.agent, next_ctx, model=model, settings=settings)
    except Exception as error:
        _logger.warning("could not set up `%s` for a transfer", target, exc_info=error)
        return f"Not transferred to [{target}]: it could not be set up: {error}"
