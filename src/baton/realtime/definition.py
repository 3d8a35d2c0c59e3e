"""What an agent of live conversations is made of. What it does with the floor is in `floor`.

Contexts beside that of an activation: for a turn of it, and for whoever is to have the floor after it.

What the model is to be told when an agent gets the floor, worked out and checked before it does.
"""

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
from ..tools.guardrails import GuardrailFunction, as_guardrails
from .protocol import RealtimeModel
from .settings import RealtimeSettings, SessionConfig

C = TypeVar("C", default=Any)


@dataclass(frozen=True, eq=False, repr=False)
class RealtimeDefinition(AgentWithTools[C, str]):
    """Everything one can say about an agent of live conversations."""

    _: KW_ONLY
    voice: str | None = None
    """The voice it speaks with, while none has been heard yet in the conversation; None is the session's."""
    tool_choice: str = "auto"
    """What its responses may do: "auto", "none", "required" or the name of one tool."""
    output_guardrails: Sequence[GuardrailFunction] = ()
    """Judge what it says while it says it: `(ctx, transcript so far)`. A no stops it."""

    @property
    def changes_in_time(self) -> bool:
        """Whether what its model is told may be another thing later on."""
        return self.template or bool(self._toolsets) or not isinstance(self.instructions, str)

    def __post_init__(self) -> None:
        super().__post_init__()
        (checked,) = as_guardrails(f"`{self.name}`", output_guardrails=self.output_guardrails)
        object.__setattr__(self, "output_guardrails", checked)
        for edge in self._edges():
            for what, is_there in (
                ("input_filter", edge.input_filter is not None),
                ("history", edge.history is not None),
                ("return_to", edge.return_to is not None),
            ):
                if is_there:
                    raise SetupError(
                        f"`{self.name}` has a handoff to `{edge.target}` with {what}=…, which a live conversation "
                        "cannot have: the model keeps what it has heard, and nobody ends but by handing over"
                    )

    def as_tool(self, *args: Any, **options: Any) -> Tool:
        """Not for agents that speak: a live conversation has one floor, and whoever calls a tool keeps it."""
        raise SetupError(
            f"`{self.name}` speaks in a live conversation and cannot be a tool; hand over to it, or make it an Agent"
        )


def sibling_context(
    ctx: AgentContext[Any],
    *,
    origin: Origin | None = None,
    history: History | None = None,
    routes: Routes | None = None,
    turn_start: int = 0,
) -> AgentContext[Any]:
    """A context that reads what this one reads, with some things of its own."""
    return AgentContext(
        ctx._run,
        origin or ctx._origin,
        history if history is not None else ctx._history,
        _Seen(ctx),
        routes or ctx._routes,
        ctx._options,
        turn_start,
        ctx._flow,
    )


class _Seen:
    def __init__(self, ctx: AgentContext[Any]) -> None:
        self.messages = ctx.messages


_logger = logging.getLogger("baton.realtime")


class PreparedAgent(Struct, frozen=True):
    """Everything for an agent to get the floor: settings that the model takes, and the tools in them."""

    agent: RealtimeDefinition[Any]
    settings: SessionConfig
    toolbox: ToolTable
    changes: ValueChanges | None = None
    """What its instructions and conditions did to the run's values."""


async def prepared(
    agent: RealtimeDefinition[Any], ctx: AgentContext[Any], *, model: RealtimeModel, manners: RealtimeSettings
) -> PreparedAgent:
    """What the model is to be told. Raises SetupError if it would not take it."""
    toolbox = await current_tool_table(agent, ctx, f"{ctx._scope}/ready")
    instructions = await build_instructions(ctx, agent.instructions, template=agent.template)
    disabled = await disabled_handoffs(ctx, agent, f"{ctx._scope}/ready") if ctx._routes.conditional else ()
    tools = tuple([spec for spec in toolbox.specs + ctx._routes.specs if spec.name not in disabled])
    voice = agent.voice or manners.voice
    settings = SessionConfig(agent.name, instructions, tools, agent.tool_choice, voice, manners)
    model.check(settings)
    return PreparedAgent(agent, settings, toolbox, ctx._take_changes())


async def prepared_for(
    target: str, ctx: RunContext[Any], caller: AgentContext[Any], *, model: RealtimeModel, manners: RealtimeSettings
) -> PreparedAgent | str:
    """The same for an agent that is to have the floor next; or what to tell the model if it cannot be had."""
    try:
        course = cast(TeamFlow, caller._flow)
        seat = course.seat(course.team.seats[caller.agent], target)
        if not isinstance(seat.agent, RealtimeDefinition):
            raise SetupError(f"`{target}` is a {type(seat.agent).__name__}, not a RealtimeAgent; use its as_tool()")
        origin = Origin(f"{ctx._scope}/ready", target, caller._origin)
        next_ctx = sibling_context(caller, origin=origin, routes=seat.routes)
        return await prepared(seat.agent, next_ctx, model=model, manners=manners)
    except Exception as error:
        _logger.warning("`%s` could not be made ready for the floor", target, exc_info=error)
        return f"Not transferred to [{target}]: it could not be set up: {error}"
