"""A griffe extension: show in the reference what callers write.

Griffe reads source code, and does not see what dataclasses, structs and typed dictionaries make of it. This extension
gives every class the parameters that it has at run time, and replaces `**args: Unpack[RunArgs]` with the keywords.
"""

import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from typing import Any, cast, is_typeddict

import griffe
import msgspec

WIDTH = 96
"""The longest line of a signature that fits on a page."""
_NAMED_DEFAULT = re.compile(r"""`?("\w+"|\d+)`? (?:\(default\)|by default)""")
SHOWN_LABELS = {"async", "classmethod", "property", "staticmethod"}
NOT_FOR_PROGRAMS = ("batonkit.cli", "batonkit.__main__")


class CallersView(griffe.Extension):
    """Shows the parameters of classes and functions, and hides what only contributors read."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Change everything in the package; classes last, because they read the fields of others."""
        objects = list(_objects(pkg))
        for each in objects:
            if isinstance(each, griffe.Module):
                each.docstring = None  # It is for contributors; each page has its own introduction.
            elif isinstance(each, griffe.Function):
                _show_parameters(each, pkg)
            elif isinstance(each, griffe.Attribute):
                _show_value(each)
            each.labels &= SHOWN_LABELS
        for view in [ClassView(each, pkg) for each in objects if isinstance(each, griffe.Class) and each.docstring]:
            view.apply()


def _objects(parent: griffe.Module | griffe.Class) -> Iterator[griffe.Object]:
    """Yield an object and all that it contains, without what it imports."""
    yield parent
    for member in [*parent.members.values()]:
        if isinstance(member, griffe.Module | griffe.Class):
            if not member.path.startswith(NOT_FOR_PROGRAMS):
                yield from _objects(member)
        elif isinstance(member, griffe.Function | griffe.Attribute):
            yield member


def plain(value: Any) -> Any:
    """Return a value without `cast(…)` around it or its elements."""
    if isinstance(value, griffe.ExprCall) and value.canonical_path == "typing.cast":
        return value.arguments[1]
    if isinstance(value, griffe.ExprTuple | griffe.ExprList):
        value.elements = [plain(each) for each in value.elements]
    return value


def _show_value(attribute: griffe.Attribute) -> None:
    """Show the value of a constant, and the type of what `__init__` assigns."""
    attribute.value = plain(attribute.value)
    if "instance-attribute" not in attribute.labels or "class-attribute" in attribute.labels:
        return
    init = attribute.parent.members.get("__init__") if attribute.parent is not None else None
    if attribute.annotation is None and isinstance(init, griffe.Function) and str(attribute.value) in init.parameters:
        attribute.annotation = init.parameters[str(attribute.value)].annotation
    attribute.value = None


def _show_parameters(function: griffe.Function, package: griffe.Module) -> None:
    for parameter in function.parameters:
        parameter.default = plain(parameter.default)
    _expand_keywords(function, package)


def _expand_keywords(function: griffe.Function, package: griffe.Module) -> None:
    """Replace `**args: Unpack[Keywords]` with the keywords, also in the docstring."""
    variadic = next((each for each in function.parameters if each.kind is griffe.ParameterKind.var_keyword), None)
    annotation: Any = variadic.annotation if variadic is not None else None
    if variadic is None or not getattr(annotation, "canonical_path", "").endswith(".Unpack"):
        return
    keywords: Any = package.modules_collection[annotation.slice.canonical_path]
    fields = [_keyword(each) for each in keywords.attributes.values()]
    documented = _parameters_section(function)
    del function.parameters[variadic.name]
    for parameter in fields:
        function.parameters.add(parameter)
    if documented is not None:
        documented.value = [
            *(each for each in documented.value if each.name.lstrip("*") != variadic.name),
            *(_documented(each) for each in fields),
        ]


def _keyword(field: griffe.Attribute) -> griffe.Parameter:
    """Make a parameter of an optional field of a typed dictionary."""
    return griffe.Parameter(
        field.name,
        annotation=field.annotation,
        kind=griffe.ParameterKind.keyword_only,
        default=_default_of_keyword(field),
        docstring=field.docstring,
    )


def _default_of_keyword(field: griffe.Attribute) -> str:
    """Return the default that the docstring names, or the empty value of the type, or `...`."""
    annotation = str(field.annotation)
    if named := _NAMED_DEFAULT.search(field.docstring.value if field.docstring is not None else ""):
        return named.group(1)
    if "None" in annotation.split(" | "):
        return "None"
    return {"bool": "False", "str": '""'}.get(annotation, "...")


def _documented(parameter: griffe.Parameter) -> griffe.DocstringParameter:
    return griffe.DocstringParameter(
        parameter.name,
        description=parameter.docstring.value if parameter.docstring else "",
        annotation=parameter.annotation,
        value=cast("str | None", parameter.default),
    )


def _parameters_section(owner: griffe.Object) -> griffe.DocstringSectionParameters | None:
    sections = owner.docstring.parsed if owner.docstring else []
    return next((each for each in sections if isinstance(each, griffe.DocstringSectionParameters)), None)


class ClassView:
    """The view of a class: how to construct it, and its fields in a list without headings."""

    def __init__(self, cls: griffe.Class, package: griffe.Module) -> None:
        self.cls = cls
        kind: Any = getattr(import_module(cls.module.path), cls.name, object)
        section = _parameters_section(cls)
        self.documented = section.value if section is not None else []
        names = [each.name for each in self.documented]
        sources = [*_sources(kind, package)]
        has_fields = is_dataclass(kind) or is_typeddict(kind) or issubclass(kind, msgspec.Struct | BaseException)
        own = _stored(cls)
        shown = own if own or names else [each for source in reversed(sources) for each in _stored(source)]
        self.hidden = [each.name for each in own if has_fields or each.name in names]
        self.fields = [each for each in shown if has_fields and each.name not in names and each.docstring]
        self.parameters = _constructor(kind, sources, names) if names or self.fields else None

    def apply(self) -> None:
        """Change the class, once all views are made: they read the fields of base classes too."""
        if self.parameters is not None:
            self.cls.set_member("__init__", griffe.Function("__init__", parameters=self.parameters, parent=self.cls))
            self.cls.extra["reference"]["signature"] = signature_of(self.cls.name, self.parameters)
            for item in self.documented:
                if item.name in self.parameters:
                    parameter = self.parameters[item.name]
                    item.annotation, item.value = parameter.annotation, cast("str | None", parameter.default)
        if self.fields and self.cls.docstring is not None:
            self.cls.docstring.parsed.append(griffe.DocstringSectionAttributes([*map(_attribute, self.fields)]))
        for name in self.hidden:
            self.cls.del_member(name)


def _attribute(field: griffe.Attribute) -> griffe.DocstringAttribute:
    description = field.docstring.value if field.docstring is not None else ""
    return griffe.DocstringAttribute(field.name, description=description, annotation=field.annotation)


def _stored(cls: griffe.Class) -> list[griffe.Attribute]:
    """Return the public attributes that a class stores, without properties."""
    attributes = [each for each in cls.members.values() if isinstance(each, griffe.Attribute)]
    return [each for each in attributes if "property" not in each.labels and each.name[0] != "_"]


def _constructor(kind: Any, sources: list[griffe.Class], order: list[str]) -> griffe.Parameters | None:
    """Return the parameters in the order of the docstring; None for classes not called."""
    if is_typeddict(kind) or issubclass(kind, BaseException) or getattr(kind, "_is_protocol", False):
        return None
    parameters = [*inspect.signature(kind).parameters.values()]
    private = [each for each in parameters if each.name.startswith("_")]
    if any(each.default is each.empty for each in private):
        return None
    keywords = [each for each in parameters if each.kind is each.KEYWORD_ONLY and each.name in order]
    keywords.sort(key=lambda each: order.index(each.name))
    others = [each for each in parameters if each not in keywords and each not in private]
    return griffe.Parameters(*(_parameter(each, sources) for each in [*others, *keywords]))


def _sources(kind: type, package: griffe.Module) -> Iterator[griffe.Class]:
    """Yield what griffe has read of a class and its bases."""
    for base in inspect.getmro(kind):
        if base.__module__.partition(".")[0] == package.name:
            yield package.modules_collection[f"{base.__module__}.{base.__qualname__}"]


def _parameter(parameter: inspect.Parameter, sources: list[griffe.Class]) -> griffe.Parameter:
    annotation, default = next(filter(None, (_source(parameter.name, each) for each in sources)), (None, None))
    return griffe.Parameter(
        parameter.name,
        annotation=annotation,
        kind=griffe.ParameterKind(parameter.kind.description),
        default=None if parameter.default is parameter.empty else _written(parameter.default, default),
    )


def _written(value: Any, source: Any) -> Any:
    """Write a default as a program would: a constant as such, anything else as in the source."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if value is None or isinstance(value, bool | int | float | tuple | list | dict):
        return repr(cast("object", value))
    return value.__name__ if isinstance(value, type) else plain(source) or repr(value)


def _source(name: str, cls: griffe.Class) -> tuple[Any, Any] | None:
    """Return the annotation and the default of a parameter or field in the source of one class."""
    init = cls.members.get("__init__")
    if isinstance(init, griffe.Function) and name in init.parameters:
        return init.parameters[name].annotation, init.parameters[name].default
    if (field := cls.attributes.get(name)) is not None:
        return field.annotation, field.value
    return None


def signature_of(name: str, parameters: griffe.Parameters) -> str:
    """Write a call with parameters and defaults; the list of parameters has the types."""
    shown: list[str] = []
    stars = (griffe.ParameterKind.var_positional, griffe.ParameterKind.keyword_only)
    has_star = False
    for each in parameters:
        if each.kind is griffe.ParameterKind.keyword_only and not has_star:
            shown.append("*")
        has_star = has_star or each.kind in stars
        prefix = "*" if each.kind is griffe.ParameterKind.var_positional else ""
        shown.append(f"{prefix}{each.name}" + (f"={each.default}" if each.default is not None else ""))
    line = f"{name}({', '.join(shown)})"
    if len(line) <= WIDTH:
        return line
    lines = textwrap.fill(", ".join(shown), WIDTH, initial_indent="    ", subsequent_indent="    ")
    return f"{name}(\n{lines}\n)"
