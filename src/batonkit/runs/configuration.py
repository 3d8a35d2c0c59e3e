"""The options of a runner that a clone may change: checked once, and compiled for the flows of its runs."""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from .._checks import check_callback
from .._wording import show
from ..agents import Compaction, RunHooks
from ..agents.agent_context import RunConfig, compile_history
from ..agents.compaction import check_compaction
from ..agents.middleware import check_middleware
from ..context import Limits
from ..errors import SetupError, quote_names
from ..models import Model, ModelSettings, Prices, resolve_model
from ..models.prices import check_prices
from ..team import Team
from ..team.follow import FlowConfig
from .observers import Observer, check_observers
from .rules import HandoffRules, HistoryOptions
from .run_args import ContextFactory


class RunnerOptions(Struct, frozen=True, kw_only=True):
    """The options of a runner, except its team and its store."""

    model: Model | None = None
    model_settings: ModelSettings | None = None
    limits: Limits = Limits()
    hooks: RunHooks | None = None
    observers: tuple[Observer, ...] = ()
    middleware: tuple[Any, ...] = ()
    history: HistoryOptions = HistoryOptions()
    compaction: Compaction | None = None
    handoff_rules: HandoffRules = HandoffRules()
    context_factory: ContextFactory | None = None
    prices: Prices | None = None

    def change(self, caller: str, **arguments: Any) -> "RunnerOptions":
        """Return the options with other arguments; those that are UNSET change nothing.

        Raises:
            SetupError: An argument is invalid.
        """
        changes = {name: value for name, value in arguments.items() if value is not UNSET}
        return replace(self, **{name: _CHECKS[name](caller, value) for name, value in changes.items()})

    def compile(self, team: Team) -> FlowConfig:
        """Return the configuration of the flows of a team. Raises SetupError if they do not fit."""
        rules = self.handoff_rules
        history = self.history
        if rules.loop_fallback is not None and team.members.get(rules.loop_fallback) is None:
            argument = f"HandoffRules(loop_fallback={show(rules.loop_fallback)})"
            names = quote_names([*team.members])
            raise SetupError(f"{argument} is not an agent of the team, which has: {names}")
        return FlowConfig(
            team,
            RunConfig(
                model=self.model,
                model_settings=self.model_settings,
                multiple_transfers=rules.multiple_transfers,
                max_corrections=rules.max_corrections,
                hooks=self.hooks,
                middleware=self.middleware,
                compaction=self.compaction,
                prices=self.prices,
            ),
            self.limits,
            history=compile_history(history.policy),
            hide_transfers=not history.show_transfers,
            loop_fallback=rules.loop_fallback,
            input_filter=history.input_filter,
            context_factory=self.context_factory,
        )


def _as_given(caller: str, value: Any) -> Any:
    return value


def _check_history(caller: str, history: Any) -> HistoryOptions:
    return history if isinstance(history, HistoryOptions) else HistoryOptions(history)


def _check_context_factory(caller: str, factory: Any) -> Any:
    if factory is not None:
        check_callback(f"{caller.rstrip(')')}context_factory=…)", factory, "record")
    return factory


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "model": lambda caller, model: None if model is None else resolve_model(model),
    "model_settings": _as_given,
    "limits": lambda caller, limits: Limits() if limits is None else limits,
    "hooks": _as_given,
    "observers": lambda caller, observers: check_observers(observers),
    "middleware": check_middleware,
    "history": _check_history,
    "compaction": check_compaction,
    "handoff_rules": lambda caller, rules: HandoffRules() if rules is None else rules,
    "context_factory": _check_context_factory,
    "prices": lambda caller, prices: check_prices(prices),
}
"""A function for each argument: it checks what the caller gave and returns what the options hold."""
