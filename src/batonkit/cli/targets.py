"""Loads the agents, runners, stores and runs that the command line names, and sets up runs."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isawaitable, iscoroutine, signature
from os import sep
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any, TypeAlias, TypeVar, cast

import click
from msgspec.structs import replace

from .._wording import type_of
from ..agents import BaseAgent
from ..context import Limits
from ..errors import BatonError, RunError, SetupError, nearest, quote_names
from ..inspection.edges import definition_of
from ..log import Delta, Event
from ..log.log import Log
from ..models import MODEL_ENV_VAR, Model, resolve_model
from ..realtime import RealtimeAgent, RealtimeRunner
from ..runs import Interrupt, Runner, RunResult, RunStream
from ..runs.result import to_interrupt
from ..stores import FINISHED_STATUSES, FullStore, RunRecord, SQLiteStore, Store, resolve_store
from .cli_errors import TargetError
from .cli_options import QUIET, RunArguments
from .display import Screen
from .output import write
from .progress import Spinner

T = TypeVar("T")
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
        kind = type_of(target)
        raise TargetError(f"`{reference}` is {kind}, for live conversations; use `baton voice {reference}`")
    return target


def find_target(reference: str) -> Target:
    """Load any target; without a name after the colon, the module's only candidate."""
    location, attribute = _split(reference)
    module = _import(location)
    if not attribute:
        return _only_candidate(module, location)
    return _make_target(_get_attribute(module, attribute, location), reference, module)


def check_runner_options(reference: str, owned: str, options: Mapping[str, object]) -> None:
    """Raise TargetError for options that apply to agents only, where the target is a runner."""
    if any(value is not None for value in options.values()):
        raise TargetError(
            f"`{reference}` is a Runner, which has its own {owned}; "
            f"leave {' and '.join(options)} out, or name the agent instead of the runner"
        )


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
        location = reference.strip()
        attribute = ""
    if not location:
        raise TargetError(f"`{reference}` has no module; {_FORM}")
    return location, attribute.strip()


def _import(location: str) -> ModuleType:
    is_file = location.endswith(".py") or "/" in location or sep in location
    _add_to_path(Path.cwd())
    try:
        return _import_file(location) if is_file else import_module(location)
    except BatonError:
        raise
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if is_file or not missing or not f"{location}.".startswith(f"{missing}."):
            raise _import_failure(location, error) from error
        within = f" (there is no `{missing}`)" if missing != location else ""
        hint = nearest(location, [found.stem for found in Path.cwd().glob("*.py")]) or f"; {_FORM}"
        where = f"neither installed nor in `{Path.cwd()}`"
        raise TargetError(f"there is no module `{location}`{within}, {where}{hint}") from error


def _import_file(location: str) -> ModuleType:
    path = Path(location if location.endswith(".py") else f"{location}.py").expanduser().resolve()
    if not path.is_file():
        neighbours = [str(Path(location).parent / found.name) for found in path.parent.glob("*.py")]
        raise TargetError(f"there is no file `{location}`{nearest(location, neighbours) or f'; {_FORM}'}")
    # As `python file.py` does, so that it can import its neighbours.
    _add_to_path(path.parent)
    name = path.stem.replace(".", "_")
    name = name if name not in sys.modules else f"{name} ({path})"
    spec = spec_from_file_location(name, path)
    # A .py file always has a loader.
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _add_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _import_failure(location: str, error: BaseException) -> TargetError:
    """Describe an error in the module and its place."""
    frames = [frame for frame in extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    at = f"{frames[-1].filename}, line {frames[-1].lineno}" if len(frames) > 1 else ""
    if isinstance(error, SyntaxError):
        at = f"{error.filename}, line {error.lineno}"
    place = f" ({at})" if at else ""
    if isinstance(error, ModuleNotFoundError):
        return TargetError(f"`{location}` imports `{error.name}`, which is not installed{place}")
    if isinstance(error, SystemExit):
        guard = "guard that with `if __name__ == '__main__'`"
        return TargetError(f"`{location}` exits when it is imported{place}; {guard}")
    return TargetError(f"`{location}` cannot be imported: {type(error).__name__}: {error}{place}")


def _get_attribute(module: ModuleType, attribute: str, location: str) -> Any:
    found = cast(Any, module)
    parent = location
    for name in attribute.split("."):
        if not hasattr(found, name):
            hint = nearest(name, [known for known in dir(found) if not known.startswith("_")])
            raise TargetError(f"`{parent}` has no `{name}`{hint} {_inventory(module)}".rstrip())
        parent = f"{parent}{':' if found is module else '.'}{name}"
        found = getattr(found, name)
    return found


def _make_target(found: Any, reference: str, module: ModuleType) -> Target:
    problem = f"`{reference}` is of type {type(found).__name__}"
    if not isinstance(found, _KINDS) and callable(found) and _takes_no_arguments(found):
        try:
            found = found()
        except BatonError:
            raise
        except Exception as error:
            raise TargetError(f"`{reference}()` raised {type(error).__name__}: {error}") from error
        what = "an awaitable" if isawaitable(found) else f"an object of type {type(found).__name__}"
        problem = f"`{reference}()` returned {what}"
    if isinstance(found, _KINDS):
        return cast(Target, found)
    if iscoroutine(found):
        found.close()
    raise TargetError(f"{problem}; {_WORKS} {_inventory(module)}".rstrip())


def _takes_no_arguments(function: Any) -> bool:
    try:
        signature(function).bind()
    except (TypeError, ValueError):
        return False
    return True


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
        chosen, target = next(iter(choices.items()))
        _show_choice(location, chosen, [name for name in names if name != chosen])
        return target
    if not found:
        raise TargetError(f"`{location}` has no agents or runners; {_WORKS}, as in `{location}:make_agent`")
    candidates = [f"{location}:{name}" for name in choices or agents]
    raise TargetError(f"`{location}` has several candidates; name one: {quote_names(candidates)}")


def _show_choice(location: str, chosen: str, others: Iterable[str]) -> None:
    """Say which of several agents and runners is used, unless the command is quiet."""
    context = click.get_current_context(silent=True)
    is_quiet = context is not None and context.meta.get(QUIET)
    names = [f"{location}:{name}" for name in others]
    if names and not is_quiet:
        text = f"using `{location}:{chosen}`; to use another, name it: {quote_names(names)}"
        write(text, err=True, dim=True)


def _referenced(agents: Iterable[BaseAgent[Any, Any]]) -> Iterator[object]:
    """Yield the agents, or their names, that other agents lead to or wrap."""
    for agent in agents:
        yield from agent.sub_agents
        yield from agent.inner_agents()
        yield from agent._referenced_agents()
        yield from (edge.agent for edge in agent._edges())
        yield getattr(agent, "inner", None)


store_option = click.option(
    "--store",
    metavar="STORE",
    envvar="BATON_STORE",
    show_envvar=True,
    required=True,
    help="The store: a file such as runs.db, or a URL such as postgresql://user@host/database.",
)
"""The option of commands that work on a store."""


def with_store(location: str, work: Callable[[FullStore], Awaitable[T]]) -> T:
    """Open a store, do some work on it, and close it."""

    async def run() -> T:
        store = open_store(location)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def open_store(location: str, *, existing: bool = True) -> FullStore:
    """Open the store that --store names. Raises TargetError if it does not exist."""
    try:
        store = resolve_store(location)
    except SetupError as error:
        raise TargetError(str(error)) from error
    if location.lower().startswith("memory:"):
        works = "use a file such as runs.db, or postgresql://…"
        raise TargetError(f"--store memory: would be lost when the program ends; {works}")
    try:
        is_missing = existing and isinstance(store, SQLiteStore) and not store.path.is_file()
    except OSError as error:
        raise TargetError(f"--store {location} cannot be opened: {error.strerror or error}") from error
    if is_missing:
        raise TargetError(f"there is no store `{location}`; `baton run … --store {location}` creates it")
    return store


async def get_record(store: Store, run_id: str) -> RunRecord:
    """Return the record of a run. Raises TargetError if there is no such run."""
    record = await store.record(run_id)
    if record is None:
        raise TargetError(f"there is no run `{run_id}` in {store!r}; `baton runs ls` lists the runs")
    return record


async def open_interrupts(runner: Runner[Any, Any], run_id: str) -> list[Interrupt]:
    """Return the interrupts that a run waits for."""
    return [*map(to_interrupt, Log(await runner.runs.events(run_id)).open_interrupts().values())]


def is_driven(record: RunRecord) -> bool:
    """Return whether a worker is driving the run."""
    return record.status == "running" and record.is_leased


async def last_unfinished_run(
    runner: Runner[Any, Any] | RealtimeRunner[Any], thread: str, *, screen: Screen
) -> RunRecord | None:
    """Show how many runs a thread has; return the last one if it has not ended."""
    runs = await runner.thread(thread).runs()
    screen.line(f"thread {thread}, {len(runs)} run{'' if len(runs) == 1 else 's'} so far", "dim")
    return runs[-1] if runs and runs[-1].status not in FINISHED_STATUSES else None


def find_store(arguments: RunArguments, *, is_agent: bool, existing: bool = False) -> Store | None:
    """Open the store of --store, if given. Raises UsageError if an agent needs one for --thread."""
    if arguments.store is not None:
        return open_store(arguments.store, existing=existing)
    if arguments.thread is not None and is_agent:
        raise click.UsageError("--thread continues a stored conversation; pass --store as well")
    return None


@dataclass(frozen=True, kw_only=True)
class RunSetup:
    """A runner, the event loop of its runs, and their arguments.

    Attributes:
        runner: The runner.
        loop: The event loop.
        arguments: The options.
        limits: The limits of each run.
        target: The target as given on the command line.
        has_no_model: True if agents without a model have no default.
    """

    runner: Runner[Any, Any]
    loop: asyncio.Runner
    arguments: RunArguments
    limits: Limits
    target: str
    has_no_model: bool

    def show(
        self,
        stream: RunStream[Any],
        show: Callable[[Event | Delta], None],
        *,
        spinner: Spinner | None = None,
        alongside: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        """Drive a run and pass on all its events. Raises the error of a failed run.

        The spinner and the context manager that `alongside` returns are active meanwhile.
        """

        async def drive() -> None:
            async with alongside(), spinner.running() if spinner is not None else nullcontext(), stream:
                try:
                    async for event in stream:
                        show(event)
                except asyncio.CancelledError:
                    if spinner is not None:
                        spinner.set("stopping; Ctrl-C again does not wait")
                    raise

        try:
            self.loop.run(drive())
        except SetupError as error:
            result = get_result(stream)
            seat = self.runner.team.members.get(result.agent) if result is not None else None
            definition = definition_of(seat.agent) if seat is not None else None
            if not self.has_no_model or definition is None or definition.model is not None:
                raise
            raise SetupError(f"{error}; or use --model PROVIDER:NAME") from error


@contextmanager
def set_up_run(reference: str, arguments: RunArguments, *, existing: bool = False) -> Generator[RunSetup]:
    """Load the target and its store; `existing` requires that the store exists."""
    with _default_model(arguments.model), asyncio.Runner() as loop:
        with naming_model_option(arguments.model):
            target = load_target(reference)
            is_agent = not isinstance(target, Runner)
            store = find_store(arguments, is_agent=is_agent, existing=existing)
            runner = _make_runner(target, reference, arguments.model)
        if store is not None:
            runner = runner.clone(store=store)
        try:
            yield RunSetup(
                runner=runner,
                loop=loop,
                arguments=arguments,
                limits=replace(runner._config.limits, **arguments.limits),
                target=reference,
                has_no_model=is_agent and arguments.model is None,
            )
        finally:
            loop.run(runner.close())


@contextmanager
def naming_model_option(name: str | None) -> Generator[None]:
    """Name --model in an error that it causes; the target may blame an agent or BATON_MODEL."""
    try:
        yield
    except SetupError as error:
        if name is not None:
            # Resolved afterwards only, because the target may register the provider.
            try:
                resolve_model(name)
            except SetupError as cause:
                raise SetupError(f"--model: {cause}") from error
        raise


@contextmanager
def _default_model(name: str | None) -> Generator[None]:
    """Set BATON_MODEL during the block, so that modules find the model when they are loaded."""
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


def _make_runner(target: TextTarget, reference: str, model_name: str | None) -> Runner[Any, Any]:
    """Return the target's runner. Raises TargetError if no agent would use the model."""
    runner = target if isinstance(target, Runner) else Runner(target, model=model_name)
    if model_name is None or _uses_model(
        model_name, runner, runner._config.options.model if runner is target else None
    ):
        return runner
    if runner is target:
        check_runner_options(reference, "model", {"--model": model_name})
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


def get_result(stream: RunStream[Any]) -> RunResult[Any] | None:
    """Return the result; None if the run was stopped before it began."""
    try:
        return stream.result
    except RunError:
        return None
