"""Measure the package: sizes, layers, imports and import loops. `make shape` prints them.

Tests next to it check loops, layers and names. Sizes are for information: no limit is worth worse code.

A module is one .py file; a package is a direct child of `batonkit`, a folder or a single file. An import is made on
load, lazily (inside a function) or for types only (under TYPE_CHECKING). Nothing is imported or executed.
"""

import ast
import io
import sys
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "src" / "batonkit"
ROOT = "(root)"
"""The name of the package's own `__init__.py` among the packages."""
VAGUE_NAMES = frozenset({"utils", "helpers", "common", "core", "manager", "impl", "internal", "misc"})
ALLOWED_NAMES = frozenset({"batonkit.swarm.core", "batonkit.swarm.util"})
"""Modules whose names are Swarm's own: programs import them."""


@dataclass(frozen=True)
class Module:
    """One file: its size, its functions (lines without docstring) and the modules it imports."""

    name: str
    package: str
    path: Path
    lines: int
    code_lines: int
    functions: Mapping[str, int] = field(default_factory=dict[str, int])
    imports: frozenset[str] = frozenset()
    """Modules imported on load."""
    all_imports: frozenset[str] = frozenset()
    """Modules imported on load, lazily or for types."""


def read_modules(package: Path) -> dict[str, Module]:
    """Read every module of the package in this folder, by name."""
    paths = {_module_name(path, package): path for path in sorted(package.rglob("*.py"))}
    return {name: _read_module(name, path, known=frozenset(paths)) for name, path in paths.items()}


@cache
def baton_modules() -> dict[str, Module]:
    """Read every module of Baton, once in a process."""
    return read_modules(PACKAGE)


def package_imports(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """Map each package to the packages it imports on load."""
    packages: dict[str, set[str]] = {module.package: set() for module in modules.values()}
    for module in modules.values():
        packages[module.package] |= {modules[name].package for name in module.imports} - {module.package}
    return packages


def find_loops(graph: Mapping[str, frozenset[str] | set[str]]) -> list[list[str]]:
    """Find groups whose members all import one another, directly or indirectly."""
    reach = {name: _reachable(name, graph) for name in graph}
    groups = {frozenset(other for other in reach[name] if name in reach[other]) for name in graph}
    return sorted(sorted(group) for group in groups if group)


def layers_of(packages: Mapping[str, set[str]]) -> dict[str, int]:
    """Number the layers: 0 imports no other package, others are one above the highest they import.

    Raises:
        ValueError: Packages import one another.
    """
    layers: dict[str, int] = {}
    while len(layers) < len(packages):
        ready = [name for name in packages if name not in layers and packages[name] <= layers.keys()]
        if not ready:
            raise ValueError(f"packages import one another: {find_loops(packages)}")
        layers |= {name: max((layers[below] + 1 for below in packages[name]), default=0) for name in ready}
    return layers


def vague_names(modules: Mapping[str, Module]) -> list[str]:
    """List the modules and folders whose names say nothing."""
    found = [name for name in modules if VAGUE_NAMES & {part.strip("_") for part in name.split(".")}]
    return [name for name in found if name not in ALLOWED_NAMES]


def _module_name(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _read_module(name: str, path: Path, *, known: frozenset[str]) -> Module:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text, str(path))
    package = name.split(".")[1] if "." in name else ROOT
    parent = name if path.name == "__init__.py" else name.rpartition(".")[0]
    on_load = {target for node in _statements_on_load(tree) for target in _imported(node, parent, known)}
    anywhere = {target for node in ast.walk(tree) for target in _imported(node, parent, known)}
    return Module(
        name,
        package,
        path,
        len(text.splitlines()),
        count_code_lines(text, tree),
        dict(_functions(tree)),
        frozenset(on_load - {name}),
        frozenset(anywhere - {name}),
    )


def count_code_lines(text: str, tree: ast.Module) -> int:
    """Count lines that hold code: no docstrings, comments or blank lines."""
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code: set[int] = set()
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in layout:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docstrings)


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


def _imported(node: ast.AST, parent: str, known: frozenset[str]) -> Iterator[str]:
    """Yield the modules of the package that a statement names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in known)
    elif isinstance(node, ast.ImportFrom):
        base = parent.split(".")[: len(parent.split(".")) - node.level + 1] if node.level else []
        source = ".".join([*base, *([node.module] if node.module else [])])
        for alias in node.names:
            module = f"{source}.{alias.name}"
            if module in known or source in known:
                yield module if module in known else source


def _reachable(name: str, graph: Mapping[str, frozenset[str] | set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        found = graph[waiting.pop()] - seen
        seen |= found
        waiting.extend(found)
    return seen


def _report(modules: Mapping[str, Module]) -> Iterator[str]:
    packages = package_imports(modules)
    layers = layers_of(packages)
    lines = {name: sum(m.code_lines for m in modules.values() if m.package == name) for name in packages}
    yield f"{len(modules)} modules, {sum(lines.values())} lines of code, {len(packages)} packages"
    yield "\npackages, highest layer first"
    for name in sorted(packages, key=lambda name: (-layers[name], name)):
        imported = ", ".join(sorted(packages[name])) or "nothing"
        yield f"  {layers[name]:>2}  {name:<14}{lines[name]:>6} lines   imports {imported}"
    yield "\nlongest modules"
    for module in sorted(modules.values(), key=lambda module: -module.lines)[:8]:
        yield f"  {module.lines:>4}  {module.name}"
    yield "\nlongest functions, without docstring"
    functions = [(size, f"{m.name}:{name}") for m in modules.values() for name, size in m.functions.items()]
    for size, name in sorted(functions, reverse=True)[:8]:
        yield f"  {size:>4}  {name}"


def main() -> int:
    """Print the shape of the package; return 1 if it has import loops or vague names."""
    modules = baton_modules()
    loops = [" ⇄ ".join(loop) for loop in find_loops({name: module.imports for name, module in modules.items()})]
    if not loops:
        print("\n".join(_report(modules)))
    problems = {"loops": loops, "vague names": vague_names(modules)}
    for title, found in problems.items():
        print(f"\n{title}: {'none' if not found else ''}", *found, sep="\n  " if found else "")
    return 1 if any(problems.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
