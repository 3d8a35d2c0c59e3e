"""Resolves what the command line names: agents, runners, stores and runs, and sets up runs."""

import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import Parameter, isawaitable, iscoroutine, signature
from os import sep
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any, TypeAlias, cast

import click
import msgspec
from msgspec.structs import replace

from ..agents import BaseAgent
from ..context import Limits
from ..errors import BatonError, RunError, SetupError, quote_names
from ..events import Delta, Event
from ..models import MODEL_ENV_VAR, Model
from ..realtime import RealtimeAgent, RealtimeRunner
from ..runner import Runner, RunResult, RunStream
from ..stores import RunRecord, SQLiteStore, Store, resolve_store
from .edges import definition_of
from .errors import TargetError

TextTarget: TypeAlias = BaseAgent[Any, Any] | Runner[Any, Any]
"""An agent or runner for text."""
Target: TypeAlias = TextTarget | RealtimeRunner[Any]

_KINDS = (BaseAgent, Runner, RealtimeRunner)
_FORM = "write it as module:agent or path/to/file.py:agent"
_WORKS = "name an Agent, a Runner, or a function without parameters that returns one"


def load_target(reference: str) -> TextTarget:
    """Load an agent or runner. Raises TargetError if it is for live conversations."""
    target = find_target(reference)
    if isinstance(target, RealtimeAgent | RealtimeRunner):
        kind = type(cast(object, target)).__name__
        raise TargetError(f"`{reference}` is a {kind}, for live conversations; use `baton voice {reference}`")
    return target


def find_target(reference: str) -> Target:
    """Load any target; without a name after the colon, the module's only candidate."""
    location, attribute = _split(reference)
    module = _import(location)
    if not attribute:
        return _only_candidate(module, location)
    return _make_target(_get_attribute(module, attribute, location), reference, module)


def load_object(reference: str) -> Any:
    """Load any object; the name after the colon is required."""
    location, attribute = _split(reference)
    if not attribute:
        raise TargetError(f"`{reference}` names only a module; write {location}:name")
    return _get_attribute(_import(location), attribute, location)


def _split(reference: str) -> tuple[str, str]:
    location, colon, attribute = reference.strip().rpartition(":")
    # The colon of a Windows drive is not a separator.
    if not colon or (len(location) == 1 and attribute[:1] in ("\\", "/")):
        location, attribute = reference.strip(), ""
    if not location:
        raise TargetError(f"`{reference}` has no module; {_FORM}")
    return location, attribute.strip()


def _import(location: str) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    if location.endswith(".py") or "/" in location or sep in location:
        return _import_file(location)
    try:
        return import_module(location)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing and f"{location}.".startswith(f"{missing}."):
            raise TargetError(_missing_module(location, missing)) from error
        raise _import_failure(location, error) from error
    except BatonError:
        raise
    except (Exception, SystemExit) as error:
        raise _import_failure(location, error) from error


def _import_file(location: str) -> ModuleType:
    path = Path(location if location.endswith(".py") else f"{location}.py").expanduser().resolve()
    if not path.is_file():
        matches = get_close_matches(path.name, [found.name for found in path.parent.glob("*.py")], n=1)
        hint = f"; did you mean `{Path(location).parent / matches[0]}`?" if matches else f"; {_FORM}"
        raise TargetError(f"there is no file `{location}`{hint}")
    # As `python file.py` does, so that it can import its neighbours.
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    name = path.stem.replace(".", "_")
    name = name if name not in sys.modules else f"{name} ({path})"
    spec = spec_from_file_location(name, path)
    # A .py file always has a loader.
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, BatonError) or not isinstance(error, Exception | SystemExit):
            raise
        raise _import_failure(location, error) from error
    return module


def _missing_module(location: str, missing: str) -> str:
    within = f" (there is no `{missing}`)" if missing != location else ""
    local = [found.stem for found in Path.cwd().glob("*.py")]
    matches = get_close_matches(location, local, n=1)
    hint = f"; did you mean `{matches[0]}`?" if matches else ""
    return f"there is no module `{location}`{within}, neither installed nor in `{Path.cwd()}`{hint or f'; {_FORM}'}"


def _import_failure(location: str, error: BaseException) -> TargetError:
    """Describe an error in the module: what and where."""
    frames = [frame for frame in extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    at = f"{frames[-1].filename}, line {frames[-1].lineno}" if len(frames) > 1 else ""
    if isinstance(error, SyntaxError):
        at = f"{error.filename}, line {error.lineno}"
    place = f" ({at})" if at else ""
    if isinstance(error, ModuleNotFoundError):
        return TargetError(f"`{location}` imports `{error.name}`, which is not installed{place}")
    if isinstance(error, SystemExit):
        return TargetError(
            f"`{location}` exits when it is imported{place}; guard that with `if __name__ == '__main__'`"
        )
    return TargetError(f"`{location}` cannot be imported: {type(error).__name__}: {error}{place}")


def _get_attribute(module: ModuleType, attribute: str, location: str) -> Any:
    found: Any = module
    for step, name in enumerate(attribute.split(".")):
        if not hasattr(found, name):
            parent = location if step == 0 else f"{location}:{'.'.join(attribute.split('.')[:step])}"
            names = [*_list_targets(module)] if step == 0 else [known for known in dir(found) if known[0] != "_"]
            matches = get_close_matches(name, names or dir(found), n=1, cutoff=0.5)
            hint = f"; did you mean `{matches[0]}`?" if matches else ""
            raise TargetError(f"`{parent}` has no `{name}`{hint} {_inventory(module)}".rstrip())
        found = getattr(found, name)
    return found


def _make_target(found: Any, reference: str, module: ModuleType) -> Target:
    if isinstance(found, _KINDS):
        return cast(Target, found)
    if not callable(found) or not _takes_no_arguments(found):
        raise TargetError(f"`{reference}` is of type {type(found).__name__}; {_WORKS} {_inventory(module)}".rstrip())
    made = _call(found, reference)
    if isinstance(made, _KINDS):
        return cast(Target, made)
    if iscoroutine(made):
        made.close()
    what = "an awaitable" if isawaitable(made) else f"an object of type {type(made).__name__}"
    raise TargetError(f"`{reference}()` returned {what}; {_WORKS} {_inventory(module)}".rstrip())


def _call(function: Callable[[], Any], reference: str) -> Any:
    try:
        return function()
    except BatonError:
        raise
    except Exception as error:
        raise TargetError(f"`{reference}()` raised {type(error).__name__}: {error}") from error


def _takes_no_arguments(function: Any) -> bool:
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    optional = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return all(given.default is not Parameter.empty or given.kind in optional for given in parameters)


def _list_targets(module: ModuleType) -> dict[str, Target]:
    """Return the agents and runners of a module by name."""
    return {name: cast(Target, value) for name, value in vars(module).items() if isinstance(value, _KINDS)}


def _inventory(module: ModuleType) -> str:
    names = [*_list_targets(module)]
    return f"(found: {quote_names(names)})" if names else ""


def _only_candidate(module: ModuleType, location: str) -> Target:
    found = _list_targets(module)
    names = {id(target): name for name, target in found.items()}.values()
    runners = {name: found[name] for name in names if not isinstance(found[name], BaseAgent)}
    agents = {name: cast(BaseAgent[Any, Any], found[name]) for name in names if name not in runners}
    referenced = [*_referenced(agents.values())]
    roots = {name: agent for name, agent in agents.items() if agent not in referenced and agent.name not in referenced}
    choices: dict[str, Target] = runners or {**roots}
    if len(choices) == 1:
        return next(iter(choices.values()))
    if not found:
        raise TargetError(f"`{location}` has no agents or runners; {_WORKS}, as in `{location}:make_agent`")
    candidates = [f"{location}:{name}" for name in choices or agents]
    raise TargetError(f"`{location}` has several candidates; name one: {quote_names(candidates)}")


def _referenced(agents: Iterable[BaseAgent[Any, Any]]) -> Iterator[object]:
    """Yield the agents, or their names, that other agents lead to or wrap."""
    for agent in agents:
        yield from agent.sub_agents
        yield from agent.inner_agents()
        yield from agent._referenced_agents()
        yield from (edge.agent for edge in agent._edges())
        yield getattr(agent, "inner", None)


def open_store(location: str, *, existing: bool = True) -> Store:
    """Open the store that --store names. Raises TargetError if it does not exist."""
    try:
        store = resolve_store(location)
    except SetupError as error:
        raise TargetError(str(error)) from error
    if location.lower().startswith("memory:"):
        raise TargetError(
            "--store memory: would be lost when the program ends; use a file such as runs.db, or postgresql://…"
        )
    if existing and isinstance(store, SQLiteStore) and not store.path.is_file():
        raise TargetError(f"there is no store `{location}`; `baton run … --store {location}` creates it")
    return store


async def get_record(store: Store, run_id: str) -> RunRecord:
    """Return the record of a run. Raises TargetError if there is no such run."""
    record = await store.record(run_id)
    if record is None:
        raise TargetError(f"there is no run `{run_id}` in {store!r}; `baton runs ls` lists the runs")
    return record


@dataclass(frozen=True, kw_only=True)
class RunArguments:
    """The values of the options that run commands share.

    Attributes:
        model: --model.
        values: --value.
        limits: The limits that were given, by field of `Limits`.
        store: --store.
        thread: --thread.
    """

    model: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    store: str | None = None
    thread: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunSetup:
    """A runner, and the arguments of its runs.

    Attributes:
        runner: The runner.
        values: The values each run starts with.
        limits: The limits of each run.
        has_no_model: True if agents without a model have no default.
        target: The target as given on the command line.
        store: The store as given on the command line; "" if none.
        thread: The thread of the runs.
    """

    runner: Runner[Any, Any]
    values: Mapping[str, Any]
    limits: Limits
    has_no_model: bool
    target: str
    store: str
    thread: str | None

    def explain(self, error: Exception, stream: RunStream[Any]) -> Exception:
        """Add advice about --model to the error of a run that lacks a model."""
        result = get_result(stream)
        seat = self.runner.team.members.get(result.agent) if result is not None else None
        definition = definition_of(seat.agent) if seat is not None else None
        is_about_model = isinstance(error, SetupError) and definition is not None and definition.model is None
        if not self.has_no_model or not is_about_model:
            return error
        explained = SetupError(f"{error}; or use --model PROVIDER:NAME")
        explained.__cause__ = error
        return explained


@contextmanager
def default_model(name: str | None) -> Generator[None]:
    """Set BATON_MODEL meanwhile, so that modules find the model when they are loaded."""
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


def set_up_run(reference: str, arguments: RunArguments, *, existing: bool = False) -> RunSetup:
    """Load the target and its store; `existing` requires that the store exists."""
    store = None if arguments.store is None else open_store(arguments.store, existing=existing)
    target = load_target(reference)
    runner = _make_runner(target, reference, arguments.model)
    if store is not None:
        runner = runner.with_store(store)
    elif arguments.thread is not None and not isinstance(target, Runner):
        raise click.UsageError("--thread continues a stored conversation; pass --store as well")
    limits = replace(runner.limits, **arguments.limits)
    return RunSetup(
        runner=runner,
        values=arguments.values,
        limits=limits,
        has_no_model=not isinstance(target, Runner) and arguments.model is None,
        target=reference,
        store=arguments.store or "",
        thread=arguments.thread,
    )


def _make_runner(target: Any, reference: str, model_name: str | None) -> Runner[Any, Any]:
    """Return the target's runner. Raises TargetError if no agent would use the model."""
    if isinstance(target, Runner):
        runner = cast("Runner[Any, Any]", target)
        if model_name is None or _uses_model(model_name, runner, runner.model):
            return runner
        raise TargetError(
            f"`{reference}` is a Runner, which has its own model; "
            "leave --model out, or name the agent instead of the runner"
        )
    runner = Runner(target, model=model_name)
    if model_name is None or _uses_model(model_name, runner, None):
        return runner
    raise TargetError(
        f"every agent of `{reference}` has a model of its own, so --model {model_name} would have no effect; "
        "leave it out"
    )


def _uses_model(model_name: str, runner: Runner[Any, Any], default: Model | None) -> bool:
    """Return whether an agent uses this model by choice or default; custom agents may."""
    for seat in runner.team.members.values():
        definition = definition_of(seat.agent)
        model = definition._model or default if definition is not None else None
        if model is None or model_name in model.name:
            return True
    return False


async def show_events(stream: RunStream[Any], show: Callable[[Event | Delta], None]) -> None:
    """Drive a run and pass on all its events. Raises the error of a failed run."""
    async with stream:
        async for event in stream:
            show(event)


def get_result(stream: RunStream[Any]) -> RunResult[Any] | None:
    """Return the result; None if the run was stopped before it began."""
    try:
        return stream.result
    except RunError:
        return None


def parse_pairs(pairs: Sequence[str], *, option: str) -> dict[str, Any]:
    """Parse `key=value` pairs; values are JSON, or else text."""
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"`{pair}` is not a pair; write {option} KEY=VALUE")
        values[key.strip()] = parse_json_or_text(text)
    return values


def parse_json_or_text(text: str) -> Any:
    """Parse JSON; return the text itself if it is not JSON."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
