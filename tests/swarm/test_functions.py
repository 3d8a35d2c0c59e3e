"""Functions in every form, called with what a model wrote (S1, S2, S5)."""

# Swarm's programs have functions without annotations.
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false

import asyncio
import sqlite3
import threading
from functools import partial, wraps
from typing import Any

import pytest
from pydantic import BaseModel
from tests.swarm.clients import Client, asked, call, results, written_call

from baton import tool
from baton.errors import SetupError
from baton.swarm import Agent, Result


def outcome(function: Any, *calls: Any, **options: Any) -> list[str]:
    """What the calls of one function come to, one call a turn."""
    return results(asked(Client(*calls, "Done."), Agent(functions=[function]), **options))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("text", "text"),
        (None, "None"),
        (5, "5"),
        ({"a": [1]}, "{'a': [1]}"),
        (("x",), "('x',)"),
        (Result(value="v"), "v"),
        (Result(), ""),
        (Agent(name='Sa"les'), '{"assistant": "Sa\\"les"}'),
    ],
)
def test_what_a_function_returns_is_shown_as_swarm_shows_it(value: Any, shown: str) -> None:
    def give():
        return value

    assert outcome(give, call("give")) == [shown]


def test_parameters_without_a_type_get_whatever_the_model_gave() -> None:
    def show(a, b="b"):
        return f"{a!r} {b!r}"

    calls = [call("show", a=1), call("show", a={"x": [None]}, b=False), call("show", a="1", b=None)]
    assert outcome(show, *calls) == ["1 'b'", "{'x': [None]} False", "'1' None"]


class Size(BaseModel):
    width: int


def test_typed_parameters_arrive_as_their_types() -> None:
    """S5."""

    def cut(size: Size, times: int, names: list[str] | None = None):
        return f"{type(size).__name__} {size.width} {times!r} {names!r}"

    calls = [call("cut", size={"width": 3}, times="4"), call("cut", size={"width": 1}, times=1, names=["a"])]
    assert outcome(cut, *calls) == ["Size 3 4 None", "Size 1 1 ['a']"]


def test_arguments_that_do_not_fit_become_messages() -> None:
    """S5: in Swarm each of these ends the run."""

    def pay(amount: int):
        return str(amount)

    calls = [
        call("pay", amount="much"),
        call("pay"),
        call("pay", amount=1, to="me"),
        written_call("pay", '{"amount": '),
        written_call("pay", ""),
        call("pay", amount=7),
    ]
    wrong_type, missing, extra, cut_off, empty, paid = outcome(pay, *calls)
    assert "valid integer" in wrong_type
    assert "`amount` is required" in missing
    assert "`to` is not a parameter" in extra
    assert "write one JSON object" in cut_off
    assert "`amount` is required" in empty
    assert paid == "7"


def test_arguments_that_are_not_text_are_read_all_the_same() -> None:
    def pay(amount: int = 1):
        return str(amount)

    assert outcome(pay, written_call("pay", {"amount": 4}), written_call("pay", None)) == ["4", "1"]


def test_an_exception_becomes_a_message_and_the_run_goes_on() -> None:
    """S5."""

    def fail():
        raise LookupError("no such order")

    class Unspeakable:
        def __str__(self) -> str:
            raise TypeError("no words")

    def unspeakable():
        return Unspeakable()

    assert outcome(fail, call("fail")) == ["tool `fail` failed: LookupError: no such order"]
    assert outcome(unspeakable, call("unspeakable")) == ["tool `unspeakable` failed: TypeError: no words"]


def test_what_is_no_exception_ends_the_run_at_once() -> None:
    def stop():
        raise KeyboardInterrupt

    client = Client(call("stop"), "Done.")
    with pytest.raises(KeyboardInterrupt):
        asked(client, Agent(functions=[stop]))
    assert len(client.requests) == 1


def looked_up(city, context_variables):
    return f"{context_variables['user']} in {city}"


def logged(function: Any) -> Any:
    @wraps(function)
    def around(*args: Any, **kwargs: Any) -> Any:
        return f"logged {function(*args, **kwargs)}"

    return around


class Guide:
    def visit(self, city, context_variables):
        return looked_up(city, context_variables)

    def __call__(self, city, context_variables):
        return looked_up(city, context_variables)


@pytest.mark.parametrize(
    ("function", "name", "shown"),
    [
        (looked_up, "looked_up", "Ann in Rome"),
        (logged(looked_up), "looked_up", "logged Ann in Rome"),
        (partial(looked_up, city="Paris"), "looked_up", "Ann in Paris"),
        (partial(logged(looked_up), "Oslo"), "looked_up", "logged Ann in Oslo"),
        (Guide().visit, "visit", "Ann in Rome"),
        (Guide(), "Guide", "Ann in Rome"),
    ],
)
def test_context_variables_reach_every_kind_of_function(function: Any, name: str, shown: str) -> None:
    """S2."""
    wanted = {} if isinstance(function, partial) else {"city": "Rome"}
    assert outcome(function, call(name, **wanted), context_variables={"user": "Ann"}) == [shown]


def test_a_local_variable_of_that_name_is_no_parameter() -> None:
    """S2: Swarm looks at the names in the code, and calls such a function with one argument too many."""

    def local():
        context_variables = "mine"
        return context_variables  # noqa: RET504 - the name is the point

    assert outcome(local, call("local")) == ["mine"]


def test_a_decorator_that_hides_the_signature_leaves_a_function_without_parameters() -> None:
    def hiding(function: Any) -> Any:
        def hidden(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return hidden

    @hiding
    def to_sales():
        return Agent(name="Sales")

    assert outcome(to_sales, call("hidden")) == ['{"assistant": "Sales"}']


def test_a_type_that_no_json_can_be_read_into_gets_what_the_model_gave() -> None:
    def hold(guide: Guide, seats: int):
        return f"{guide!r} {seats!r}"

    assert outcome(hold, call("hold", guide="g", seats="2")) == ["'g' 2"]


def test_functions_run_where_the_caller_is() -> None:
    """A connection that only its own thread may use is a common thing for a Swarm program to have."""
    database = sqlite3.connect(":memory:")
    threads: list[threading.Thread] = []

    def query():
        threads.append(threading.current_thread())
        return database.execute("select 42").fetchone()[0]

    assert outcome(query, call("query")) == ["42"]
    assert threads == [threading.current_thread()]
    database.close()


def test_functions_may_use_asyncio_themselves() -> None:
    async def later() -> str:
        await asyncio.sleep(0)
        return "later"

    def fetch():
        return asyncio.run(later())

    assert outcome(fetch, call("fetch")) == ["later"]


async def waited() -> str:
    await asyncio.sleep(0)
    return "waited"


def test_async_functions_are_waited_for() -> None:
    assert outcome(waited, call("waited")) == ["waited"]


async def test_async_functions_are_waited_for_inside_a_running_loop() -> None:
    assert outcome(waited, call("waited")) == ["waited"]


def test_of_two_functions_with_one_name_the_last_counts() -> None:
    def make(word: str) -> Any:
        def say():
            return word

        return say

    client = Client(call("say"), "Done.")
    assert results(asked(client, Agent(functions=[make("first"), make("second")]))) == ["second"]
    assert len(client.requests[0]["tools"]) == 1


def test_a_tool_of_baton_is_refused() -> None:
    @tool(needs_approval=True)
    def wipe() -> str:
        """Wipe the disk."""
        raise AssertionError("it must not run")

    with pytest.raises(SetupError, match="FunctionTool\\('wipe'\\) is a tool of Baton"):
        asked(Client(call("wipe")), Agent(functions=[wipe]))
