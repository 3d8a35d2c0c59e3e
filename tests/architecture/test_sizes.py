"""Files and functions stay small, names say something, and no module imports one that imports it."""

from pathlib import Path

import pytest
from tests.architecture.shape import (
    MOST_LINES_OF_A_FILE,
    MOST_LINES_OF_A_FUNCTION,
    PACKAGE,
    badly_named,
    floors_of,
    long_files,
    long_functions,
    loops_in,
    main,
    modules_of,
    rooms_of,
)


def test_no_file_is_too_long() -> None:
    assert long_files(modules_of(PACKAGE)) == []


def test_no_function_is_too_long() -> None:
    assert long_functions(modules_of(PACKAGE)) == []


def test_names_say_something() -> None:
    assert badly_named(modules_of(PACKAGE)) == []


def test_no_module_imports_one_that_imports_it() -> None:
    modules = modules_of(PACKAGE)
    assert len(modules) > 50
    assert loops_in({name: module.imports for name, module in modules.items()}) == []
    assert loops_in(rooms_of(modules)) == []


def test_the_house_can_be_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    printed = capsys.readouterr().out
    assert "loops: none" in printed
    assert "baton.agents.turn" in printed


def _package(folder: Path, **files: str) -> Path:
    for name, text in {"__init__": "", **files}.items():
        path = folder / "shop" / f"{name.replace('__in__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "shop"


def test_a_loop_is_found_only_where_it_happens_on_load(tmp_path: Path) -> None:
    late = "def late():\n    from . import till\n"
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .till import Till\n"
    package = _package(tmp_path, till="from .desk import Desk\n", desk=late, door=typed + "from . import till\n")
    modules = modules_of(package)
    imports = {name: set(module.imports) for name, module in modules.items()}
    assert imports == {
        "shop": set(),
        "shop.till": {"shop.desk"},
        "shop.desk": set(),
        "shop.door": {"shop", "shop.till"},
    }
    assert loops_in(imports) == []
    assert floors_of(rooms_of(modules))["door"] == 2

    (package / "desk.py").write_text("try:\n    from .till import Till\nexcept ImportError:\n    pass\n")
    modules = modules_of(package)
    assert loops_in({name: module.imports for name, module in modules.items()}) == [["shop.desk", "shop.till"]]
    with pytest.raises(ValueError, match="import one another"):
        floors_of(rooms_of(modules))


def test_what_is_too_long_is_found_and_docstrings_are_not_counted(tmp_path: Path) -> None:
    docstring = '    """One.\n' + "\n    More.\n" * 40 + '    """\n'
    body = "    x = 1\n" * (MOST_LINES_OF_A_FUNCTION - 1)
    method = "".join(f"    {line}\n" for line in f"def fits(self):\n{docstring}{body}".splitlines())
    package = _package(tmp_path, till=f"class Till:\n{method}", desk=f"async def is_long():\n{body}    y = 2\n")
    modules = modules_of(package)
    assert modules["shop.till"].functions == {"Till.fits": MOST_LINES_OF_A_FUNCTION}
    assert [line.rpartition(": ")[2] for line in long_functions(modules)] == ["is_long has 61 lines"]
    assert long_files(modules) == []
    (package / "till.py").write_text("x = 1\n" * (MOST_LINES_OF_A_FILE + 1))
    assert len(long_files(modules_of(package))) == 1


def test_names_that_say_nothing_are_found(tmp_path: Path) -> None:
    package = _package(tmp_path, _utils="", core__in__till="", scores="")
    assert badly_named(modules_of(package)) == ["shop._utils", "shop.core.till"]
