"""The public API: the names that packages export, and the parameters that their docstrings describe."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, cast, get_type_hints

import msgspec
from tests.architecture.shape import PACKAGE

from batonkit.mcp import TokenStore
from batonkit.stores import FullStore

PROTOCOLS: dict[str, tuple[type, ...]] = {
    "TokenStore": (TokenStore,),
    "Store": inspect.getmro(FullStore),
}
"""Protocols whose docstrings hold for the classes that implement them, by the end of their names."""

NOT_FOR_PROGRAMS = frozenset(
    {"__init__", "__main__", "__pycache__", "cli", "py", "_checks", "_lazy", "_propagation", "version", "_wording"}
)
PACKAGES = sorted({path.stem for path in PACKAGE.iterdir()} - NOT_FOR_PROGRAMS)
"""The packages and modules that programs import from."""
NOT_CONSTRUCTED = frozenset({"A2AApp", "AgentContext", "ReadOnlyLog", "RunContext", "RunResult", "RunStream"})
"""Classes that programs receive and do not construct."""
_SECTION = re.compile(r"^(Args|Attributes|Keyword Args):\s*$", re.MULTILINE)


def public_names(package: str) -> list[str]:
    """List what a package exports: its `__all__`, or for a single module the public names it defines."""
    module = import_module(f"batonkit.{package}")
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def public_objects() -> Iterator[tuple[str, Any]]:
    """Yield every exported class and function once, with its dotted name."""
    seen: set[int] = set()
    for package in PACKAGES:
        for name in public_names(package):
            value = getattr(import_module(f"batonkit.{package}"), name)
            if (inspect.isclass(value) or inspect.isfunction(value)) and id(value) not in seen:
                seen.add(id(value))
                yield f"batonkit.{package}.{name}", value


def has_docstrings(value: Any) -> bool:
    """Return whether a class or function, and each public method that the class defines, has a docstring."""
    members = cast("dict[str, Any]", vars(value))
    methods = [name for name, member in members.items() if _is_method(name, member)]
    return bool(inspect.getdoc(value)) and all(_inherited_doc(value, name) for name in methods)


def _is_method(name: str, value: Any) -> bool:
    return not name.startswith("_") and inspect.isfunction(getattr(value, "__func__", value))


def public_functions() -> Iterator[tuple[str, Any]]:
    """Yield every exported function and public method, inherited ones too, with its dotted name."""
    for name, value in public_objects():
        if inspect.isfunction(value):
            yield name, value
            continue
        for member in dir(value):
            function = getattr(inspect.getattr_static(value, member), "__func__", inspect.getattr_static(value, member))
            is_public = not member.startswith("_") or member.endswith("__")
            if is_public and inspect.isfunction(function) and function.__module__.startswith("batonkit"):
                yield f"{name}.{member}", function


def undocumented(name: str, value: Any) -> Iterator[str]:
    """Yield the parameters of a class or function, and of its public methods, that no docstring describes."""
    if inspect.isfunction(value):
        yield from _undocumented_parameters(name, value, inspect.getdoc(value) or "")
        return
    if not issubclass(value, BaseException) and value.__name__ not in NOT_CONSTRUCTED:
        yield from _undocumented_fields(name, value)
    for member, function in vars(value).items():
        plain: Any = getattr(function, "__func__", function)
        if not member.startswith("_") and inspect.isfunction(plain):
            yield from _undocumented_parameters(f"{name}.{member}", plain, _inherited_doc(value, member))


def _undocumented_fields(name: str, value: type) -> Iterator[str]:
    described = _described(inspect.getdoc(value) or "") | _described(inspect.getdoc(value.__init__) or "")
    described |= {field for owner in value.__mro__ for field in _field_docstrings(owner)}
    fields = _fields(value)
    for field in fields if fields is not None else _parameters(value.__init__):
        if field not in described:
            yield f"{name}({field})"


def _fields(value: Any) -> list[str] | None:
    if issubclass(value, msgspec.Struct):
        return [field for field in value.__struct_fields__ if not field.startswith("_")]
    if "__dataclass_fields__" in vars(value):
        return [field for field in value.__dataclass_fields__ if not field.startswith("_")]
    if getattr(value, "__total__", None) is not None:
        return list(get_type_hints(value))
    return None if "__init__" in vars(value) else []


def _undocumented_parameters(name: str, function: Any, docstring: str) -> Iterator[str]:
    described = _described(docstring)
    yield from (f"{name}({each})" for each in _parameters(function) if each not in described)


def _parameters(function: Any) -> list[str]:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind not in kinds and p.name not in ("self", "cls") and p.name[0] != "_"]


def _described(docstring: str) -> set[str]:
    """Return the names that the sections of a Google-style docstring describe."""
    return {
        name.lstrip("*")
        for section in _SECTION.split(docstring)[2::2]
        for names in re.findall(r"^ {4}([*\w, ]+?)(?: \([^)]*\))?:", section, re.MULTILINE)
        for name in names.split(", ")
    }


def _field_docstrings(owner: type) -> set[str]:
    """Return the fields of a class that have a docstring below them."""
    try:
        source = inspect.getsource(owner)
    except (OSError, TypeError):
        return set()
    return set(re.findall(r"^ {4}(\w+)\s*:[^\n]*(?:\n(?! {4}\w)[^\n]*)*?\n {4}\"\"\"", source, re.MULTILINE))


def _inherited_doc(owner: type, member: str) -> str:
    """Join the docstrings of a method in a class, its bases and the protocol that it implements."""
    owners = (
        *owner.__mro__,
        *(each for end, parts in PROTOCOLS.items() if owner.__name__.endswith(end) for each in parts),
    )
    docs = (inspect.getdoc(vars(base)[member]) for base in owners if member in vars(base))
    return "\n".join(doc for doc in docs if doc)
