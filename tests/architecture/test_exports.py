"""What the front door and the rooms offer exists, is in order, and is in the reference."""

import ast
import inspect
import re
from importlib import import_module
from typing import Any, get_type_hints

import pytest
from tests.architecture.reference import HOMES, REFERENCE, ROOMS, described, made, public_names, with_table
from tests.architecture.shape import FRONT_DOOR, PACKAGE, modules_of, rooms_of

import baton
from baton.tools.function import ToolOptions

WITH_LISTS = [room for room in ROOMS if (PACKAGE / room).is_dir()]


def _place(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions, each by the alphabet."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def test_the_front_door_offers_what_the_rooms_have() -> None:
    offered = [name for names in HOMES.values() for name in names]
    assert sorted(offered) == sorted(baton.__all__)
    assert len(set(offered)) == len(offered)
    for room, names in HOMES.items():
        home = import_module(f"baton.{room}")
        assert [name for name in names if getattr(baton, name) is not getattr(home, name)] == []


def test_a_type_checker_sees_the_same_front_door() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    (guarded,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        node.module: sorted(alias.name for alias in node.names)
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
    }
    assert seen == {room: sorted(names) for room, names in HOMES.items()}


def test_what_is_not_offered_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Kitchen'"):
        _ = getattr(baton, "Kitchen")  # noqa: B009 - the type checker would know that it is not there
    assert set(baton.__all__) <= set(dir(baton))


@pytest.mark.parametrize("room", WITH_LISTS)
def test_a_room_lists_what_it_offers_in_order(room: str) -> None:
    module = import_module(f"baton.{room}")
    names = list(module.__all__)
    assert names == sorted(names, key=_place)
    assert [name for name in names if not hasattr(module, name)] == []


def test_the_front_door_lists_its_names_in_order() -> None:
    assert baton.__all__ == sorted(baton.__all__, key=_place)


@pytest.mark.parametrize("room", [*ROOMS, "cli"])
def test_a_room_says_what_it_is_for_and_what_it_may_import(room: str) -> None:
    docstring = " ".join((import_module(f"baton.{room}").__doc__ or "").split())
    imports = re.search(r"\b(?:May import|Imports) [^.]+\.", docstring)
    assert imports is not None, f"baton.{room} does not say what it may import"
    assert docstring[: imports.start()].strip(), f"baton.{room} does not say what it is for"
    if (PACKAGE / room).is_dir():
        assert docstring[imports.end() :].strip(), f"baton.{room} does not say what it must not do"


def test_the_reference_has_a_page_for_each_room() -> None:
    assert set(ROOMS) == set(rooms_of(modules_of(PACKAGE))) - {FRONT_DOOR, "__main__", "cli"}
    assert {page.stem for page in REFERENCE.glob("*.md")} == {"index", *ROOMS}


@pytest.mark.parametrize("room", ROOMS)
def test_every_name_of_a_room_says_what_it_is(room: str) -> None:
    assert [name for name in public_names(room) if not described(room, name)] == []


def test_the_reference_is_up_to_date() -> None:
    stale = [path.name for path, table in made() if (text := path.read_text("utf-8")) != with_table(text, table)]
    assert stale == [], "run `make fix`"


def _parameters(thing: Any) -> list[str]:
    return [name for name in inspect.signature(thing).parameters if name not in ("self", "_")]


@pytest.mark.parametrize(
    ("room", "name"),
    [
        *(("agents", name) for name in ("Agent", "agent", "guarded", "then_transfer")),
        *(("handoffs", name) for name in ("Handoff", "handoff")),
        *(("models", name) for name in ("Retry", "Failover", "ModelSettings", "ModelRequest")),
        *(("runner", name) for name in ("Runner",)),
        *(("context", name) for name in ("Limits",)),
        *(("testing", name) for name in ("ScriptedModel",)),
        *(("tools", name) for name in ("Approval", "ToolResult", "Verdict", "guarded_tool", "tool")),
    ],
)
def test_the_reference_names_each_parameter(room: str, name: str) -> None:
    thing = getattr(import_module(f"baton.{room}"), name)
    wanted = [*get_type_hints(ToolOptions)] if name == "tool" else _parameters(thing)
    page = (REFERENCE / f"{room}.md").read_text(encoding="utf-8")
    section = re.split(r"^## ", page, flags=re.MULTILINE)
    text = next((part for part in section if part.startswith(f"`{name}`")), "")
    assert text, f"docs/reference/{room}.md has no section `{name}`"
    assert [parameter for parameter in wanted if f"`{parameter}`" not in text] == []
