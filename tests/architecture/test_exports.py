"""The exported names exist and are sorted."""

import ast
import asyncio
import contextlib
import inspect
import re
from importlib import import_module
from typing import Any

import pytest
from tests.architecture.public import PACKAGES, public_functions, public_names
from tests.architecture.shape import PACKAGE, REPOSITORY, ROOT, baton_modules, package_imports

import batonkit
from batonkit import BatonError

MAX_ROOT_NAMES = 41
EXPORTED: dict[str, tuple[str, ...]] = vars(batonkit)["_PACKAGES"]
WITH_LISTS = [package for package in PACKAGES if (PACKAGE / package).is_dir()]


def _sort_key(name: str) -> tuple[int, str]:
    """Sort constants first, then classes, then functions."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def test_the_root_exports_names_of_packages() -> None:
    exported = [name for names in EXPORTED.values() for name in names]
    assert sorted(exported) == sorted(batonkit.__all__)
    assert len(set(exported)) == len(exported)
    assert len(exported) <= MAX_ROOT_NAMES, f"at most {MAX_ROOT_NAMES} names; export it from its package only"
    for package, names in EXPORTED.items():
        module = import_module(f"batonkit.{package}")
        assert [name for name in names if getattr(batonkit, name) is not getattr(module, name)] == []


def test_a_type_checker_sees_the_same_names() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    (guarded,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        node.module: sorted(alias.name for alias in node.names)
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
    }
    assert seen == {package: sorted(names) for package, names in EXPORTED.items()}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Kitchen'"):
        _ = getattr(batonkit, "Kitchen")  # noqa: B009 - the type checker would know that it is not there


def test_dir_shows_public_names_only() -> None:
    assert dir(batonkit) == sorted(batonkit.__all__)


@pytest.mark.parametrize("package", WITH_LISTS)
def test_a_package_sorts_its_names(package: str) -> None:
    module = import_module(f"batonkit.{package}")
    names = list(module.__all__)
    assert names == sorted(names, key=_sort_key)
    assert [name for name in names if not hasattr(module, name)] == []


def test_the_root_sorts_its_names() -> None:
    assert batonkit.__all__ == sorted(batonkit.__all__, key=_sort_key)


@pytest.mark.parametrize("package", [*WITH_LISTS, "cli"])
def test_a_package_says_what_it_is_for_and_what_it_may_import(package: str) -> None:
    docstring = " ".join((import_module(f"batonkit.{package}").__doc__ or "").split())
    imports = re.search(r"\b(?:May import|Imports) [^.]+\.", docstring)
    assert imports is not None, f"batonkit.{package} does not say what it may import"
    assert docstring[: imports.start()].strip(), f"batonkit.{package} does not say what it is for"


def test_the_public_packages_are_all_but_those_for_the_library_itself() -> None:
    assert set(PACKAGES) == set(package_imports(baton_modules())) - {
        ROOT,
        "__main__",
        "cli",
        "_checks",
        "_lazy",
        "_propagation",
        "version",
        "_wording",
    }


def _tree_of_errors() -> str:
    page = (REPOSITORY / "docs" / "guides" / "troubleshooting.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```text\n(BatonError\n.*?)\n```$", page, re.MULTILINE | re.DOTALL)
    return shown


def test_the_tree_of_errors_has_every_error_below_its_base() -> None:
    branches: list[str] = []
    shown: dict[str, str] = {}
    for line in _tree_of_errors().splitlines()[1:]:
        indent, _, entry = line.partition("── ")
        name = entry.split()[0]
        branches[len(indent) // 4 :] = [name]
        shown[name] = (["BatonError", *branches])[-2]
    kinds = [kind for kind in vars(import_module("batonkit.errors")).values() if isinstance(kind, type)]
    bases = {kind.__name__: kind.__bases__[0].__name__ for kind in kinds if issubclass(kind, BatonError)}
    assert shown == {name: base for name, base in bases.items() if name != "BatonError"}, (
        "correct the tree in docs/guides/troubleshooting.md"
    )


def test_errors_have_six_branches() -> None:
    branches = {kind.__name__ for kind in BatonError.__subclasses__() if kind.__module__ == "batonkit.errors"}
    assert branches == {"SetupError", "ModelError", "ToolError", "RunError", "StoreError", "RemoteError"}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_exports_something(package: str) -> None:
    assert public_names(package)


def test_every_public_coroutine_function_is_recognised_as_one() -> None:
    functions = [(name, function) for name, function in public_functions() if not is_abstract(function)]
    hidden = [name for name, function in functions if gives_coroutine(function) != is_recognised(function)]
    assert hidden == [], "a web framework would call these in a thread and never await what they return"
    assert len([function for _, function in functions if inspect.iscoroutinefunction(function)]) > 100


def test_every_public_async_generator_function_is_recognised_as_one() -> None:
    hidden = [
        name
        for name, function in public_functions()
        if inspect.isasyncgenfunction(inspect.unwrap(function)) != inspect.isasyncgenfunction(function)
        and function.__code__.co_filename != contextlib.__file__  # A context manager.
    ]
    assert hidden == []


def is_recognised(function: Any) -> bool:
    """Return what `asyncio.iscoroutinefunction` says; it is deprecated, but before Python 3.12 only it knows marks."""
    mark = getattr(asyncio.coroutines, "_is_coroutine", object())
    return inspect.iscoroutinefunction(function) or getattr(function, "_is_coroutine", None) is mark


def is_abstract(function: Any) -> bool:
    return getattr(function, "__isabstractmethod__", False)


def gives_coroutine(function: Any) -> bool:
    """Return whether a function is `async def`, below its decorators, or says that it returns a coroutine."""
    original = inspect.unwrap(function)
    returned = str(inspect.get_annotations(original).get("return"))
    return inspect.iscoroutinefunction(original) or "Coroutine" in returned.partition("[")[0]
