"""Tools made of functions."""

import logging
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar, assert_type

import pytest

from batonkit.context import RunContext
from batonkit.context.run_context import SuspendRun
from batonkit.errors import (
    LimitError,
    RemoteError,
    RunError,
    SetupError,
    StoreError,
    ToolError,
    ToolFailedError,
    ToolResultError,
)
from batonkit.log import InterruptAnswered
from batonkit.tools import FunctionTool, Tool, ToolResult, tool
from batonkit.tools.base_tool import unwrap_tool

P = ParamSpec("P")
R = TypeVar("R")
Ctx = RunContext[Any]
MakeContext = Callable[..., Ctx]


@tool
async def get_weather(city: str) -> str:
    """Get the current weather for a city."""
    return f"25°C in {city}"


@tool(name="add", description="Adds.")
def add_up(a: int, b: int = 2) -> int:
    return a + b


async def test_a_decorated_function_is_a_tool(ctx: Ctx) -> None:
    assert isinstance(get_weather, Tool)
    assert get_weather.spec.name == "get_weather"
    assert get_weather.spec.description == "Get the current weather for a city."
    assert await get_weather.call(ctx, '{"city": "Beijing"}') == ToolResult("25°C in Beijing")


async def test_a_decorated_function_still_is_the_function() -> None:
    assert_type(add_up(1, b=4), int)
    assert add_up(1, b=4) == 5
    spoken = await get_weather("Paris")
    assert_type(spoken, str)
    assert spoken == "25°C in Paris"
    assert get_weather.__doc__ == "Get the current weather for a city."


async def test_options_name_and_describe_it(ctx: Ctx) -> None:
    assert (add_up.spec.name, add_up.spec.description, add_up.spec.strict) == ("add", "Adds.", False)
    assert await add_up.call(ctx, '{"a": 1}') == ToolResult("3")


async def test_without_decorator_syntax(ctx: Ctx) -> None:
    def shout(text: str) -> str:
        return text.upper()

    assert await tool(shout, strict=True).call(ctx, '{"text": "a"}') == ToolResult("A")
    assert tool(shout, strict=True).spec.strict


class Shop:
    """Sells things."""

    def __init__(self, name: str) -> None:
        self.name = name

    def price(self, item: str) -> str:
        """The price of an item."""
        return f"{item} at {self.name}"

    async def stock(self, item: str) -> int:
        return len(item)

    def __call__(self, item: str) -> str:
        return f"sold {item}"


class AsyncShop:
    async def __call__(self, item: str) -> str:
        return f"sold {item}"


def passed_on(function: Callable[P, R]) -> Callable[P, R]:
    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    ("made", "name", "told"),
    [
        (tool(Shop("Ada").price), "price", "tea at Ada"),
        (tool(Shop("Ada").stock), "stock", "3"),
        (tool(Shop("Ada")), "Shop", "sold tea"),
        (tool(AsyncShop()), "AsyncShop", "sold tea"),
        (tool(partial(AsyncShop(), item="milk")), "AsyncShop", "sold milk"),
        (tool(partial(Shop.price, Shop("Eve"))), "price", "tea at Eve"),
        (tool(passed_on(Shop("Ada").price)), "price", "tea at Ada"),
        (tool(passed_on(Shop("Ada").stock)), "stock", "3"),
        (tool(lambda: "tea", name="drink"), "drink", "tea"),
        (tool(lambda: get_weather("Oslo"), name="later"), "later", "25°C in Oslo"),
    ],
)
@pytest.mark.parametrize("thread", [True, False])
async def test_whatever_can_be_called_can_be_a_tool(
    made: FunctionTool[..., Any], name: str, told: str, thread: bool, ctx: Ctx
) -> None:
    made = tool(made.function, in_thread=thread, name=made.name)
    arguments = '{"item": "tea"}' if "item" in made.spec.parameters["properties"] else ""
    assert made.name == made.spec.name == name
    assert (await made.call(ctx, arguments)).content == told


def test_a_partial_hides_what_it_has_filled_in() -> None:
    def fetch(url: str, *, key: str = "secret", retries: int = 1) -> str:
        return url + key * retries

    made = tool(partial(fetch, key="hunter2"))
    assert list(made.spec.parameters["properties"]) == ["url", "retries"]
    assert "hunter2" not in str(made.spec)


def test_a_callable_object_is_described_by_its_class() -> None:
    assert tool(Shop("Ada")).spec.description == "Sells things."
    assert tool(partial(Shop("Ada").price)).spec.description == "The price of an item."


async def test_the_context_is_given_wherever_it_stands(make_context: Callable[..., Ctx]) -> None:
    def first(ctx: RunContext[str], word: str) -> str:
        return word + ctx.context

    def last(word: str, *, ctx: RunContext | None = None) -> str:
        return word + str(ctx and ctx.context)

    made: FunctionTool[..., str]
    for made in (tool(first), tool(last)):
        assert list(made.spec.parameters["properties"]) == ["word"]
        assert await made.call(make_context(context="!"), '{"word": "hi"}') == ToolResult("hi!")


async def test_values_can_be_injected_and_types_assumed(make_context: Callable[..., Ctx]) -> None:
    # What the Swarm door is built with.
    def greet(context_variables: dict[str, Any], name: str, times: int = 1) -> str:
        return f"{context_variables['greeting']} {name}" * times

    del greet.__annotations__["context_variables"], greet.__annotations__["name"]

    def variables(ctx: Ctx) -> dict[str, Any]:
        return dict(ctx.values)

    class GreetingTool(FunctionTool[..., str]):
        _untyped = str
        _injected = {"context_variables": variables, "not_there": variables}

    made = GreetingTool(greet)
    assert made.spec.parameters["properties"]["name"] == {"type": "string"}
    assert "context_variables" not in made.spec.parameters["properties"]
    outcome = await made.call(make_context(values={"greeting": "hello"}), '{"name": "Ada"}')
    assert outcome == ToolResult("hello Ada")


async def test_a_result_can_be_the_answer(ctx: Ctx) -> None:
    # By the tool, or by a result that says so; an error never is.
    @tool(return_directly=True)
    async def answer(kind: str) -> str | ToolResult:
        if kind == "fails":
            raise ValueError(kind)
        return ToolResult("own") if kind == "own" else kind

    async def speak() -> ToolResult:
        return ToolResult("that is it", is_final=True)

    assert await answer.call(ctx, '{"kind": "plain"}') == ToolResult("plain", is_final=True)
    assert await answer.call(ctx, '{"kind": "own"}') == ToolResult("own", is_final=True)
    assert not (await answer.call(ctx, '{"kind": "fails"}')).is_final
    assert not (await answer.call(ctx, "{}")).is_final
    assert (await tool(speak).call(ctx, "")).is_final


async def failing(error: str) -> str:
    kinds: dict[str, BaseException] = {
        "value": ValueError("no such city"),
        "empty": KeyError(),
        "tool": ToolError("Ask for a city in France."),
        "setup": SetupError("wrong"),
        "run": LimitError("transfers", 1, ()),
        "store": StoreError("locked"),
        "remote": RemoteError("Billing", "it is down"),
        "failed": ToolFailedError("nested"),
        "result": ToolResultError("odd"),
        "suspend": SuspendRun("key"),
        "exit": SystemExit(1),
    }
    raise kinds[error]


async def test_a_failing_tool_tells_the_model(ctx: Ctx, caplog: pytest.LogCaptureFixture) -> None:
    outcome = await tool(failing).call(ctx, '{"error": "value"}')
    assert outcome == ToolResult("tool `failing` failed: ValueError: no such city", is_error=True)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("baton.tools", logging.WARNING)
    assert record.exc_info is not None
    assert record.exc_info[2] is not None
    assert (await tool(failing).call(ctx, '{"error": "empty"}')).content == "tool `failing` failed: KeyError"


async def test_a_tool_error_goes_to_the_model_as_it_is(ctx: Ctx, caplog: pytest.LogCaptureFixture) -> None:
    told = ToolResult("Ask for a city in France.", is_error=True)
    assert await tool(failing).call(ctx, '{"error": "tool"}') == told
    assert await tool(failing, on_error="raise").call(ctx, '{"error": "tool"}') == told
    assert await tool(failing, on_error=lambda error: "no").call(ctx, '{"error": "tool"}') == told
    assert not caplog.records


async def test_an_error_can_end_the_run(ctx: Ctx) -> None:
    # on_error="raise"
    with pytest.raises(ToolFailedError, match="tool `failing` failed: ValueError: no such city") as raised:
        await tool(failing, on_error="raise").call(ctx, '{"error": "value"}')
    assert raised.value.tool == "failing"
    assert isinstance(raised.value.__cause__, ValueError)


async def test_an_error_can_be_put_in_other_words(ctx: Ctx, caplog: pytest.LogCaptureFixture) -> None:
    made = tool(failing, on_error=lambda error: f"sorry: {error}")
    assert await made.call(ctx, '{"error": "value"}') == ToolResult("sorry: no such city", is_error=True)
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("kind", "raised"),
    [
        ("setup", SetupError),
        ("run", RunError),
        ("store", StoreError),
        ("remote", RemoteError),
        ("failed", ToolFailedError),
        ("result", ToolResultError),
        ("suspend", SuspendRun),
        ("exit", SystemExit),
    ],
)
@pytest.mark.parametrize("thread", [True, False])
async def test_errors_that_the_model_cannot_fix_are_raised(
    kind: str, raised: type[BaseException], thread: bool, ctx: Ctx
) -> None:
    def failing_sync() -> None:
        failing(kind).send(None)

    with pytest.raises(raised):
        await tool(failing).call(ctx, f'{{"error": "{kind}"}}')
    with pytest.raises(raised):
        await tool(failing_sync, in_thread=thread, on_error=lambda error: "hushed").call(ctx, "")


async def test_an_invalid_result_raises_an_error_with_the_tool_name(ctx: Ctx) -> None:
    with pytest.raises(ToolResultError, match="tool `odd` returned a object"):
        await tool(lambda: object(), name="odd").call(ctx, "")


def test_a_tool_is_not_made_twice() -> None:
    with pytest.raises(SetupError, match="`get_weather` is a tool already"):
        tool(get_weather)


def test_a_misspelt_policy_is_found_at_once() -> None:
    with pytest.raises(SetupError, match=r'on_error=\'ignore\'; use "return", "raise" or a function'):
        tool(failing, on_error="ignore")  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_the_bottom_of_the_wrappers_is_the_function_tool() -> None:
    class Around:
        def __init__(self, inner: Tool) -> None:
            self.inner = inner

        @property
        def spec(self) -> Any:
            return self.inner.spec

        async def call(self, ctx: Ctx, arguments: str) -> ToolResult:
            return await self.inner.call(ctx, arguments)

    plain = tool(failing, timeout=1, needs_approval=True)
    assert unwrap_tool(Around(Around(plain))) is plain
    assert unwrap_tool(plain) is plain


async def test_something_may_be_put_around_the_bare_call(make_context: MakeContext) -> None:
    class Noted:
        def __init__(self, inner: Tool) -> None:
            self.inner = inner
            self.spec = inner.spec

        async def call(self, ctx: Ctx, arguments: str) -> ToolResult:
            noted.append(arguments)
            return await self.inner.call(ctx, arguments)

    @tool(needs_approval=True)
    async def ship(item: str) -> str:
        """Ship."""
        return f"{item} shipped"

    noted: list[str] = []
    twin, ctx = ship._wrap_function(Noted), make_context()
    with pytest.raises(SuspendRun):
        await twin.call(ctx, '{"item": "lamp"}')
    assert (noted, twin.name, twin.spec) == ([], "ship", ship.spec)
    answered = InterruptAnswered("1/m1.0/ask1!", ctx._origin, 0.0, "1/m1.0/ask1", {"approved": True})
    again = make_context([*ctx._run.log.events, answered])
    assert (await twin.call(again, '{"item": "lamp"}')).content == "lamp shipped"
    assert noted == ['{"item": "lamp"}']
