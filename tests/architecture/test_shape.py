"""Modules and functions stay small, names say something, and there are no import loops."""

import ast
from pathlib import Path

import pytest
from tests.architecture.shape import (
    MAX_CODE_LINES,
    MAX_FUNCTION_LINES,
    MAX_MODULE_LINES,
    MAX_MODULES,
    PACKAGE,
    baton_modules,
    find_loops,
    layers_of,
    long_functions,
    long_modules,
    main,
    package_imports,
    read_modules,
    vague_names,
)


def test_no_module_is_too_long() -> None:
    assert long_modules(baton_modules()) == []


def test_no_function_is_too_long() -> None:
    assert long_functions(baton_modules()) == []


def test_the_package_stays_small() -> None:
    modules = baton_modules()
    code_lines = sum(module.code_lines for module in modules.values())
    advice = "simplify; if the change is a feature, raise the limit in tests/architecture/shape.py"
    assert len(modules) <= MAX_MODULES, f"{len(modules)} modules, at most {MAX_MODULES}; {advice} (MAX_MODULES)"
    assert code_lines <= MAX_CODE_LINES, f"{code_lines} lines, at most {MAX_CODE_LINES}; {advice} (MAX_CODE_LINES)"


def test_names_say_something() -> None:
    assert vague_names(baton_modules()) == []


def test_there_are_no_import_loops() -> None:
    """Lazy and type-only imports count as well, except those of the package root, which loads names on first use."""
    modules = baton_modules()
    assert len(modules) > 50
    assert find_loops({name: module.imports for name, module in modules.items()}) == []
    assert find_loops({name: module.all_imports - {"baton"} for name, module in modules.items()}) == []
    assert find_loops(package_imports(modules)) == []


def test_nothing_imports_the_package_root() -> None:
    modules = baton_modules()
    direct = [name for name, module in modules.items() if _imports_root(module.path) and name != "baton"]
    assert direct == []


def _imports_root(path: Path) -> bool:
    depth = len(path.relative_to(PACKAGE).parts)
    return any(
        isinstance(node, ast.ImportFrom)
        and (node.module == "baton" if not node.level else node.module is None and node.level == depth)
        and not any((PACKAGE / alias.name).exists() or (PACKAGE / f"{alias.name}.py").exists() for alias in node.names)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )


def test_the_shape_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    printed = capsys.readouterr().out
    assert "loops: none" in printed
    assert "longest modules" in printed


def _package(folder: Path, **files: str) -> Path:
    for name, text in {"__init__": "", **files}.items():
        path = folder / "shop" / f"{name.replace('__in__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "shop"


def test_imports_on_load_are_told_from_the_others(tmp_path: Path) -> None:
    late = "def late():\n    from . import till\n"
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .till import Till\n"
    package = _package(tmp_path, till="from .desk import Desk\n", desk=late, door=typed + "from . import till\n")
    modules = read_modules(package)
    imports = {name: set(module.imports) for name, module in modules.items()}
    assert imports == {
        "shop": set(),
        "shop.till": {"shop.desk"},
        "shop.desk": set(),
        "shop.door": {"shop.till"},
    }
    assert find_loops(imports) == []
    assert find_loops({name: module.all_imports for name, module in modules.items()}) == [["shop.desk", "shop.till"]]
    assert layers_of(package_imports(modules))["door"] == 2

    (package / "desk.py").write_text("try:\n    from .till import Till\nexcept ImportError:\n    pass\n")
    modules = read_modules(package)
    assert find_loops({name: module.imports for name, module in modules.items()}) == [["shop.desk", "shop.till"]]
    with pytest.raises(ValueError, match="import one another"):
        layers_of(package_imports(modules))


def test_long_functions_are_found_and_docstrings_are_not_counted(tmp_path: Path) -> None:
    docstring = '    """One.\n' + "\n    More.\n" * 40 + '    """\n'
    body = "    x = 1\n" * (MAX_FUNCTION_LINES - 1)
    method = "".join(f"    {line}\n" for line in f"def fits(self):\n{docstring}{body}".splitlines())
    package = _package(tmp_path, till=f"class Till:\n{method}", desk=f"async def is_long():\n{body}    y = 2\n")
    modules = read_modules(package)
    assert modules["shop.till"].functions == {"Till.fits": MAX_FUNCTION_LINES}
    assert modules["shop.till"].code_lines == MAX_FUNCTION_LINES + 1
    assert [line.rpartition(": ")[2] for line in long_functions(modules)] == [
        "is_long has 71 lines; split it (at most 70)"
    ]
    assert long_modules(modules) == []
    (package / "till.py").write_text("x = 1\n" * (MAX_MODULE_LINES + 1))
    assert len(long_modules(read_modules(package))) == 1


def test_vague_names_are_found(tmp_path: Path) -> None:
    package = _package(tmp_path, _utils="", core__in__till="", scores="")
    assert vague_names(read_modules(package)) == ["shop._utils", "shop.core.till"]
