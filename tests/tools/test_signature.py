"""Functions that cannot be tools are refused at construction, with a hint at what works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Optional, cast

import pytest

from batonkit.context import RunContext
from batonkit.errors import SetupError
from batonkit.tools import FunctionTool, ToolResult, tool

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTheChecker


def no_annotation(city: str, days: int) -> str:
    return ""


del no_annotation.__annotations__["city"]


def any_number(*cities: str) -> str:
    return ""


def any_option(**cities: str) -> str:
    return ""


def by_position(city: str, /) -> str:
    return ""


def generator() -> Iterator[str]:
    yield ""


class Thing:
    def method(self, city: str) -> str:
        return city


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (
            no_annotation,
            r"`no_annotation` cannot be a tool: parameter `city` has no annotation.*`city: str`.*RunContext",
        ),
        (any_number, r"`any_number` cannot be a tool: `\*cities: 'str'` accepts anything.*name each one"),
        (any_option, r"`any_option` cannot be a tool: `\*\*cities: 'str'` accepts anything"),
        (by_position, r"parameter `city` is positional-only.*behind the `/`"),
        (generator, r"it is a generator; return the whole result.*ctx.progress"),
        (Thing.method, r"unbound method.*tool\(thing.method\)"),
        (Thing, r"is a class; give a function"),
        (lambda: 1, r"cannot be named `<lambda>`; give it a name"),
        (3, r"3 is an int; give a function"),
        (max, r"`max` cannot be a tool: its signature cannot be read; wrap it"),
        (cast(Any, dict).get, r"`get` cannot be a tool"),
    ],
)
def test_the_error_names_tool_parameter_and_cure(function: Any, told: str) -> None:
    with pytest.raises(SetupError, match=told):
        tool(function)


@pytest.mark.parametrize("name", ["a b", "天气", "x" * 65, "a.b"])
def test_names_that_providers_refuse(name: str) -> None:
    with pytest.raises(SetupError, match="up to 64 letters, digits"):
        tool(lambda: 1, name=name)


def test_a_local_class_cannot_be_found_by_name() -> None:
    class Local:
        pass

    def takes_local(thing: Local) -> str:
        return ""

    made = tool(takes_local)
    told = (
        r"annotation `Local` of parameter `thing` cannot be evaluated in module `.*test_signature`.*top of that module"
    )
    with pytest.raises(SetupError, match=told):
        _ = made.spec


def test_a_name_for_the_checker_only_cannot_be_found() -> None:
    def pay(amount: OnlyForTheChecker) -> str:
        return ""

    with pytest.raises(SetupError, match=r"parameter `amount`.*not in a function or under TYPE_CHECKING"):
        _ = tool(pay).spec


def test_only_parameters_need_to_be_resolve_annotations() -> None:
    def returns_unknown(a: int) -> OnlyForTheChecker:
        raise NotImplementedError

    assert tool(returns_unknown).spec.parameters["required"] == ["a"]


class Later:
    """Made after the tools below are decorated in spirit: names are looked up at first use."""


class OwnContext(RunContext[int]):
    """A context with more to offer."""


def contexts(
    a: RunContext,
    b: RunContext[Later],
    c: Optional[RunContext],  # noqa: UP045 - the old spelling must work
    d: RunContext | None,
    e: Annotated[RunContext[int], "the run"],
    f: OwnContext,
    word: str,
) -> str:
    """Every spelling of a context."""
    return f"{len({id(x) for x in (a, b, c, d, e, f)})} {word}"


async def test_every_spelling_of_a_context(ctx: RunContext[Any]) -> None:
    made = tool(contexts)
    assert list(made.spec.parameters["properties"]) == ["word"]
    assert await made.call(ctx, '{"word": "context"}') == ToolResult("1 context")


def test_a_union_with_a_context_is_not_a_context() -> None:
    def unclear(thing: RunContext | str) -> str:
        return ""

    with pytest.raises(SetupError, match="parameter `thing` has a type without a JSON schema"):
        _ = tool(unclear).spec


@pytest.mark.parametrize("kind", [Callable[[int], int], Thing, "object.nothing"])
def test_a_type_without_a_schema_is_named(kind: Any) -> None:
    def takes(ok: int, odd: Any) -> str:
        return ""

    takes.__annotations__["odd"] = kind
    with pytest.raises(SetupError, match=r"`takes` cannot be a tool: .*parameter `odd`"):
        _ = FunctionTool(takes).spec
