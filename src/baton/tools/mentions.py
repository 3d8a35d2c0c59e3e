"""What a function's code refers to, without calling it: so that a team finds the agents a tool may return."""

from collections.abc import Iterable, Iterator
from functools import partial
from inspect import isfunction, ismethod, ismodule
from types import CodeType, FunctionType
from typing import Any, cast

from .signature import layers_of


def mentioned_by(function: object) -> tuple[object, ...]:
    """The objects that a function may get hold of by name, each once. Names it never uses may be among them.

    They come from globals, closures, defaults, what a partial has filled in, and the attributes that the code names
    of its own object or of a module.
    """
    layers = list(layers_of(function))
    names = {name: None for layer in layers if isfunction(layer) for name in _names_in(layer.__code__)}
    found = [thing for layer in layers for thing in _near(layer, names)]
    owners = [*map(_owner, layers), *filter(ismodule, found)]
    found.extend(thing for owner in owners for thing in _attributes(owner, names))
    return tuple({id(thing): thing for thing in found}.values())


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    # Comprehensions and inner functions are code of their own.
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _near(layer: object, names: Iterable[str]) -> Iterator[object]:
    if isinstance(layer, partial):
        bound = cast(partial[Any], layer)
        yield from bound.args
        yield from bound.keywords.values()
    elif isfunction(layer):
        yield from (layer.__globals__[name] for name in names if name in layer.__globals__)
        yield from _enclosed(layer)
        yield from layer.__defaults__ or ()
        yield from (layer.__kwdefaults__ or {}).values()


def _enclosed(function: FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue  # Not assigned yet: the function was made before what it refers to.


def _owner(layer: object) -> object:
    return layer.__self__ if ismethod(layer) else layer


def _attributes(owner: object, names: Iterable[str]) -> Iterator[object]:
    # Only what is stored: reading a property would run somebody's code.
    try:
        stored = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return
    yield from (stored[name] for name in names if name in stored)
