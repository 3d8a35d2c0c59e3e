"""From what the command line says about a run to a runner that can start it."""

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import click
import msgspec
from msgspec.structs import replace

from ..context import Limits
from ..errors import RunError, SetupError
from ..events import Delta, Event
from ..models import MODEL_ENV_VAR, Model
from ..runner import Runner, RunResult, RunStream
from .edges import definition_of
from .failures import TargetError
from .load import load
from .store import store_at


@dataclass(frozen=True, kw_only=True)
class RunArguments:
    """What the command line says about runs: limits only where it names them."""

    model: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    store: str | None = None
    thread: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunSetup:
    """A runner, and what each run of it is started with."""

    runner: Runner[Any, Any]
    values: Mapping[str, Any]
    limits: Limits
    has_no_model: bool
    """Whether agents without a model of their own have none at all."""
    target: str
    store: str
    """Where the command line wants runs to be kept; "" if it does not say."""
    thread: str | None
    """The conversation that runs are part of."""

    def explained(self, error: Exception, live: RunStream[Any]) -> Exception:
        """The error that ended the run, with what the command line can do about it."""
        result = result_of(live)
        seat = self.runner.team.seat(result.agent) if result is not None else None
        definition = definition_of(seat.agent) if seat is not None else None
        is_about_model = isinstance(error, SetupError) and definition is not None and definition.model is None
        if not self.has_no_model or not is_about_model:
            return error
        explained = SetupError(f"{error}; or say --model provider:name here")
        explained.__cause__ = error
        return explained


@contextmanager
def default_model(name: str | None) -> Generator[None]:
    """Let BATON_MODEL name this model meanwhile, so that what is loaded finds it where any program looks for it."""
    before = os.environ.get(MODEL_ENV_VAR)
    if name is not None:
        os.environ[MODEL_ENV_VAR] = name
    try:
        yield
    finally:
        if before is not None:
            os.environ[MODEL_ENV_VAR] = before
        elif name is not None:
            os.environ.pop(MODEL_ENV_VAR, None)


def start_of(reference: str, wishes: RunArguments, *, existing: bool = False) -> RunSetup:
    """What is needed to run what the command line names; `existing` wants a store that is there already."""
    store = None if wishes.store is None else store_at(wishes.store, existing=existing)
    target = load(reference)
    runner = _runner_of(target, reference, wishes.model)
    if store is not None:
        runner = runner.with_store(store)
    elif wishes.thread is not None and not isinstance(target, Runner):
        raise click.UsageError("--thread goes on with a conversation that a store has; say --store as well")
    limits = replace(runner.limits, **wishes.limits)
    return RunSetup(
        runner=runner,
        values=wishes.values,
        limits=limits,
        has_no_model=not isinstance(target, Runner) and wishes.model is None,
        target=reference,
        store=wishes.store or "",
        thread=wishes.thread,
    )


def _runner_of(target: Any, reference: str, wish: str | None) -> Runner[Any, Any]:
    """The runner that is named, or one for the agent that is. Raises TargetError if nobody would ask this model."""
    if isinstance(target, Runner):
        runner = cast("Runner[Any, Any]", target)
        if wish is None or _is_asked(wish, runner, runner.model):
            return runner
        raise TargetError(
            f"`{reference}` is a Runner, which says itself which model it uses; "
            "leave --model out, or name the agent instead of the runner"
        )
    runner = Runner(target, model=wish)
    if wish is None or _is_asked(wish, runner, None):
        return runner
    raise TargetError(
        f"every agent of `{reference}` names a model of its own, so that --model {wish} would change nothing; "
        "leave it out"
    )


def _is_asked(wish: str, runner: Runner[Any, Any], default: Model | None) -> bool:
    """Whether anybody in the team asks the model of this name, by choice or by default; who is no Agent may."""
    for seat in runner.team.seats.values():
        definition = definition_of(seat.agent)
        model = definition._model or default if definition is not None else None
        if model is None or wish in model.name:
            return True
    return False


async def watch(live: RunStream[Any], show: Callable[[Event | Delta], None]) -> None:
    """Drive the run to its end and show everything that happens. Raises what ends the run."""
    async with live:
        async for event in live:
            show(event)


def result_of(live: RunStream[Any]) -> RunResult[Any] | None:
    """Where the run stands; None if it was stopped before it began, or has not yet noticed that it was."""
    try:
        return live.result
    except RunError:
        return None


def values_from(pairs: Sequence[str]) -> dict[str, Any]:
    """`key=value` pairs as values: what is JSON as JSON, anything else as text."""
    return pairs_from(pairs, option="--value")


def pairs_from(pairs: Sequence[str], *, option: str) -> dict[str, Any]:
    """The same, for any option."""
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"`{pair}` is no value; write {option} key=value")
        values[key.strip()] = json_or_text(text)
    return values


def json_or_text(text: str) -> Any:
    """What the text says if it is JSON; otherwise the text."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
