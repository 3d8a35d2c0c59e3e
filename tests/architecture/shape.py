"""Look at the house: sizes, rooms, who imports whom, loops. `make house` prints it, the tests beside it judge it.

A module is one .py file. A room is a direct child of the package: a folder or a single file. Only imports that happen
when a module is loaded count: not those inside functions or under TYPE_CHECKING. Nothing is imported or run.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "src" / "baton"
FRONT_DOOR = "(front door)"
MOST_LINES_OF_A_FILE = 600
MOST_LINES_OF_A_FUNCTION = 60
FORBIDDEN = frozenset({"utils", "helpers", "common", "core", "manager", "impl", "internal", "misc"})
ALLOWED = frozenset({"baton.swarm.core"})
"""Modules whose names somebody else has chosen: programs for Swarm import them."""


@dataclass(frozen=True)
class Module:
    """One file: its length, its functions (length without docstring), and the modules it imports when loaded."""

    name: str
    room: str
    path: Path
    lines: int
    functions: Mapping[str, int] = field(default_factory=dict[str, int])
    imports: frozenset[str] = frozenset()


def modules_of(package: Path) -> dict[str, Module]:
    """Every module of the package in this folder, by name."""
    paths = {_name_of(path, package): path for path in sorted(package.rglob("*.py"))}
    return {name: _module(name, path, package, known=frozenset(paths)) for name, path in paths.items()}


def rooms_of(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """For each room, the rooms it imports."""
    rooms: dict[str, set[str]] = {module.room: set() for module in modules.values()}
    for module in modules.values():
        rooms[module.room] |= {modules[name].room for name in module.imports} - {module.room}
    return rooms


def loops_in(graph: Mapping[str, frozenset[str] | set[str]]) -> list[list[str]]:
    """Groups whose members all import one another, directly or not; none if imports only go one way."""
    reach = {name: _reachable(name, graph) for name in graph}
    groups = {frozenset(other for other in reach[name] if name in reach[other]) for name in graph}
    return sorted(sorted(group) for group in groups if group)


def floors_of(rooms: Mapping[str, set[str]]) -> dict[str, int]:
    """0 for a room that imports no other, otherwise one above the highest it imports. Raises ValueError for a loop."""
    floors: dict[str, int] = {}
    while len(floors) < len(rooms):
        ready = [room for room in rooms if room not in floors and rooms[room] <= floors.keys()]
        if not ready:
            raise ValueError(f"rooms import one another: {loops_in(rooms)}")
        floors |= {room: max((floors[below] + 1 for below in rooms[room]), default=0) for room in ready}
    return floors


def long_files(modules: Mapping[str, Module]) -> list[str]:
    """A line for each file that is too long."""
    return [f"{m.path}: {m.lines} lines" for m in modules.values() if m.lines > MOST_LINES_OF_A_FILE]


def long_functions(modules: Mapping[str, Module]) -> list[str]:
    """A line for each function that is too long."""
    return [
        f"{module.path}: {name} has {lines} lines"
        for module in modules.values()
        for name, lines in module.functions.items()
        if lines > MOST_LINES_OF_A_FUNCTION
    ]


def badly_named(modules: Mapping[str, Module]) -> list[str]:
    """The modules and folders whose names say nothing."""
    said_nothing = [name for name in modules if FORBIDDEN & {part.strip("_") for part in name.split(".")}]
    return [name for name in said_nothing if name not in ALLOWED]


def _name_of(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _module(name: str, path: Path, package: Path, *, known: frozenset[str]) -> Module:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text, str(path))
    room = name.split(".")[1] if "." in name else FRONT_DOOR
    holder = name if path.name == "__init__.py" else name.rpartition(".")[0]
    imported = {
        target for node in _statements_on_load(tree) for target in _targets(node, holder) if target in known
    } - {name}
    return Module(name, room, path, len(text.splitlines()), dict(_functions(tree)), frozenset(imported))


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, int]]:
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _functions(node, prefix)
            continue
        name = f"{prefix}{node.name}"
        if not isinstance(node, ast.ClassDef):
            yield name, _lines(node) - (_lines(node.body[0]) if ast.get_docstring(node) is not None else 0)
        yield from _functions(node, f"{name}.")


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _statements_on_load(node: ast.AST) -> Iterator[ast.stmt]:
    """Every statement that runs when the module is loaded."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield other
                yield from _statements_on_load(other)
            continue
        if isinstance(child, ast.stmt):
            yield child
        yield from _statements_on_load(child)


def _targets(node: ast.stmt, holder: str) -> Iterator[str]:
    """The names of modules this statement may load."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = holder.split(".")[: len(holder.split(".")) - node.level + 1] if node.level else []
        source = ".".join([*base, *([node.module] if node.module else [])])
        yield source
        yield from (f"{source}.{alias.name}" for alias in node.names)


def _reachable(name: str, graph: Mapping[str, frozenset[str] | set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        found = graph[waiting.pop()] - seen
        seen |= found
        waiting.extend(found)
    return seen


def _report(modules: Mapping[str, Module]) -> Iterator[str]:
    rooms = rooms_of(modules)
    floors = floors_of(rooms)
    lines = {room: sum(module.lines for module in modules.values() if module.room == room) for room in rooms}
    yield f"{len(modules)} files, {sum(lines.values())} lines, {len(rooms)} rooms"
    yield "\nrooms, the highest floor first"
    for room in sorted(rooms, key=lambda room: (-floors[room], room)):
        imported = ", ".join(sorted(rooms[room])) or "nothing"
        yield f"  {floors[room]:>2}  {room:<14}{lines[room]:>6} lines   imports {imported}"
    yield "\nlongest files"
    for module in sorted(modules.values(), key=lambda module: -module.lines)[:8]:
        yield f"  {module.lines:>4}  {module.name}"
    yield "\nlongest functions, without docstring"
    functions = [(size, f"{m.name}:{name}") for m in modules.values() for name, size in m.functions.items()]
    for size, name in sorted(functions, reverse=True)[:8]:
        yield f"  {size:>4}  {name}"


def main() -> int:
    """Print the house; 1 if something is wrong with it."""
    modules = modules_of(PACKAGE)
    loops = [" ⇄ ".join(loop) for loop in loops_in({name: module.imports for name, module in modules.items()})]
    if not loops:
        print("\n".join(_report(modules)))
    problems = {
        "loops": loops,
        "too long": [*long_files(modules), *long_functions(modules)],
        "names that say nothing": badly_named(modules),
    }
    for title, found in problems.items():
        print(f"\n{title}: {'none' if not found else ''}", *found, sep="\n  " if found else "")
    return 1 if any(problems.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
