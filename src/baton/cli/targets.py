"""From `module:agent` on the command line to the agent or runner it names.

The store that the command line names, and the runs in it.

From what the command line says about a run to a runner that can start it.
"""

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

Written: TypeAlias = BaseAgent[Any, Any] | Runner[Any, Any]
"""What answers in writing."""
Target: TypeAlias = Written | RealtimeRunner[Any]

_KINDS = (BaseAgent, Runner, RealtimeRunner)
_FORM = "write it as module:agent or path/to/file.py:agent"
_WORKS = "name an Agent, a Runner, or a function without parameters that returns one"


def load(reference: str) -> Written:
    """The agent or runner that this names. Raises TargetError if it is one for live conversations."""
    target = find(reference)
    if isinstance(target, RealtimeAgent | RealtimeRunner):
        kind = type(cast(object, target)).__name__
        raise TargetError(f"`{reference}` is a {kind}, for live conversations; `baton voice {reference}` holds one")
    return target


def find(reference: str) -> Target:
    """Whatever this names; without a name after the colon, the only one that can be meant."""
    where, attribute = _split(reference)
    module = _module(where)
    if not attribute:
        return _only_one(module, where)
    return _made(_named(module, attribute, where), reference, module)


def load_any(reference: str) -> Any:
    """Whatever this names, which must be said after the colon."""
    where, attribute = _split(reference)
    if not attribute:
        raise TargetError(f"`{reference}` names a module; say what of it: {where}:name")
    return _named(_module(where), attribute, where)


def _split(reference: str) -> tuple[str, str]:
    where, colon, attribute = reference.strip().rpartition(":")
    # The colon of a Windows drive does not divide anything.
    if not colon or (len(where) == 1 and attribute[:1] in ("\\", "/")):
        where, attribute = reference.strip(), ""
    if not where:
        raise TargetError(f"`{reference}` names no module; {_FORM}")
    return where, attribute.strip()


def _module(where: str) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    if where.endswith(".py") or "/" in where or sep in where:
        return _module_in_file(where)
    try:
        return import_module(where)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing and f"{where}.".startswith(f"{missing}."):
            raise TargetError(_no_such_module(where, missing)) from error
        raise _not_importable(where, error) from error
    except BatonError:
        raise
    except (Exception, SystemExit) as error:
        raise _not_importable(where, error) from error


def _module_in_file(where: str) -> ModuleType:
    path = Path(where if where.endswith(".py") else f"{where}.py").expanduser().resolve()
    if not path.is_file():
        near = get_close_matches(path.name, [found.name for found in path.parent.glob("*.py")], n=1)
        meant = f"; did you mean `{Path(where).parent / near[0]}`?" if near else f"; {_FORM}"
        raise TargetError(f"there is no file `{where}`{meant}")
    # As for `python file.py`, so that it can import its neighbours.
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    name = path.stem.replace(".", "_")
    name = name if name not in sys.modules else f"{name} ({path})"
    spec = spec_from_file_location(name, path)
    # A file that ends in .py always has a loader.
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, BatonError) or not isinstance(error, Exception | SystemExit):
            raise
        raise _not_importable(where, error) from error
    return module


def _no_such_module(where: str, missing: str) -> str:
    within = f" (there is no `{missing}`)" if missing != where else ""
    local = [found.stem for found in Path.cwd().glob("*.py")]
    near = get_close_matches(where, local, n=1)
    meant = f"; did you mean `{near[0]}`?" if near else ""
    return f"there is no module `{where}`{within}, neither installed nor in `{Path.cwd()}`{meant or f'; {_FORM}'}"


def _not_importable(where: str, error: BaseException) -> TargetError:
    """The module is there, but something in it fails: say what and where."""
    frames = [frame for frame in extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    at = f"{frames[-1].filename}, line {frames[-1].lineno}" if len(frames) > 1 else ""
    if isinstance(error, SyntaxError):
        at = f"{error.filename}, line {error.lineno}"
    place = f" ({at})" if at else ""
    if isinstance(error, ModuleNotFoundError):
        return TargetError(f"`{where}` imports `{error.name}`, and there is no such module{place}; install it first")
    if isinstance(error, SystemExit):
        return TargetError(f"`{where}` ends the program when it is imported{place}; guard it with __name__")
    return TargetError(f"`{where}` cannot be imported: {type(error).__name__}: {error}{place}")


def _named(module: ModuleType, attribute: str, where: str) -> Any:
    found: Any = module
    for step, name in enumerate(attribute.split(".")):
        if not hasattr(found, name):
            owner = where if step == 0 else f"{where}:{'.'.join(attribute.split('.')[:step])}"
            names = [*_targets_in(module)] if step == 0 else [known for known in dir(found) if known[0] != "_"]
            near = get_close_matches(name, names or dir(found), n=1, cutoff=0.5)
            meant = f"; did you mean `{near[0]}`?" if near else ""
            raise TargetError(f"`{owner}` has no `{name}`{meant} {_inventory(module)}".rstrip())
        found = getattr(found, name)
    return found


def _made(found: Any, reference: str, module: ModuleType) -> Target:
    if isinstance(found, _KINDS):
        return cast(Target, found)
    if not callable(found) or not _takes_nothing(found):
        raise TargetError(f"`{reference}` is of type {type(found).__name__}; {_WORKS} {_inventory(module)}".rstrip())
    made = _called(found, reference)
    if isinstance(made, _KINDS):
        return cast(Target, made)
    if iscoroutine(made):
        made.close()
    what = "something to await" if isawaitable(made) else f"an object of type {type(made).__name__}"
    raise TargetError(f"`{reference}()` gives {what}; {_WORKS} {_inventory(module)}".rstrip())


def _called(function: Callable[[], Any], reference: str) -> Any:
    try:
        return function()
    except BatonError:
        raise
    except Exception as error:
        raise TargetError(f"`{reference}()` raised {type(error).__name__}: {error}") from error


def _takes_nothing(function: Any) -> bool:
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    optional = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return all(given.default is not Parameter.empty or given.kind in optional for given in parameters)


def _targets_in(module: ModuleType) -> dict[str, Target]:
    """The agents and runners a module has, by the name it gives them."""
    return {name: cast(Target, value) for name, value in vars(module).items() if isinstance(value, _KINDS)}


def _inventory(module: ModuleType) -> str:
    names = [*_targets_in(module)]
    return f"(there: {quote_names(names)})" if names else ""


def _only_one(module: ModuleType, where: str) -> Target:
    found = _targets_in(module)
    names = {id(target): name for name, target in found.items()}.values()
    runners = {name: found[name] for name in names if not isinstance(found[name], BaseAgent)}
    agents = {name: cast(BaseAgent[Any, Any], found[name]) for name in names if name not in runners}
    led_to = [*_led_to(agents.values())]
    roots = {name: agent for name, agent in agents.items() if agent not in led_to and agent.name not in led_to}
    choices: dict[str, Target] = runners or {**roots}
    if len(choices) == 1:
        return next(iter(choices.values()))
    if not found:
        raise TargetError(f"`{where}` has neither agents nor runners; {_WORKS}, as in `{where}:make_agent`")
    could_be = [f"{where}:{name}" for name in choices or agents]
    raise TargetError(f"`{where}` has several agents that could be meant; say which: {quote_names(could_be)}")


def _led_to(agents: Iterable[BaseAgent[Any, Any]]) -> Iterator[object]:
    """All whom somebody else leads to or is wrapped around: agents, or their names where only those are known."""
    for agent in agents:
        yield from agent.sub_agents
        yield from agent.inner_agents()
        yield from agent._referenced_agents()
        yield from (edge.agent for edge in agent._edges())
        yield getattr(agent, "inner", None)


def store_at(where: str, *, existing: bool = True) -> Store:
    """The store that the command line names. Raises TargetError if there is none, rather than make an empty one."""
    try:
        store = resolve_store(where)
    except SetupError as error:
        raise TargetError(str(error)) from error
    if where.lower().startswith("memory:"):
        raise TargetError("`memory:` is gone when the program ends; name a file such as runs.db, or postgresql://…")
    if existing and isinstance(store, SQLiteStore) and not store.path.is_file():
        raise TargetError(f"there is no file `{where}`; `baton run … --store {where}` would make it")
    return store


async def record_of(store: Store, run_id: str) -> RunRecord:
    """What is known about a run. Raises TargetError if there is none of that name."""
    record = await store.record(run_id)
    if record is None:
        raise TargetError(f"there is no run `{run_id}` in {store!r}; `baton runs ls` lists those that are there")
    return record


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
        seat = self.runner.team.members.get(result.agent) if result is not None else None
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
    for seat in runner.team.members.values():
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
