"""Functions of every kind, called with a model's arguments."""

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
from tests.swarm.clients import Client, ask_agents, call, raw_call, results

from batonkit import tool
from batonkit.errors import SetupError
from batonkit.swarm import Agent, Result


def results_of(function: Any, *calls: Any, **options: Any) -> list[str]:
    """Return the results of calling one function, one call per turn."""
    return results(ask_agents(Client(*calls, "Done."), Agent(functions=[function]), **options))


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
def test_return_values_are_formatted_as_in_swarm(value: Any, shown: str) -> None:
    def give():
        return value

    assert results_of(give, call("give")) == [shown]


def test_parameters_without_a_type_get_the_models_value() -> None:
    def show(a, b="b"):
        return f"{a!r} {b!r}"

    calls = [call("show", a=1), call("show", a={"x": [None]}, b=False), call("show", a="1", b=None)]
    assert results_of(show, *calls) == ["1 'b'", "{'x': [None]} False", "'1' None"]


class Size(BaseModel):
    width: int


def test_typed_parameters_are_converted() -> None:

    def cut(size: Size, times: int, names: list[str] | None = None):
        return f"{type(size).__name__} {size.width} {times!r} {names!r}"

    calls = [call("cut", size={"width": 3}, times="4"), call("cut", size={"width": 1}, times=1, names=["a"])]
    assert results_of(cut, *calls) == ["Size 3 4 None", "Size 1 1 ['a']"]


def test_invalid_arguments_are_reported_to_the_model() -> None:
    """In Swarm each of these ends the run."""

    def pay(amount: int):
        return str(amount)

    calls = [
        call("pay", amount="much"),
        call("pay"),
        call("pay", amount=1, to="me"),
        raw_call("pay", '{"amount": '),
        raw_call("pay", ""),
        call("pay", amount=7),
    ]
    wrong_type, missing, extra, cut_off, empty, paid = results_of(pay, *calls)
    assert "valid integer" in wrong_type
    assert "`amount` is required" in missing
    assert "`to` is not a parameter" in extra
    assert "write one JSON object" in cut_off
    assert "`amount` is required" in empty
    assert paid == "7"


def test_arguments_may_be_objects_or_none() -> None:
    def pay(amount: int = 1):
        return str(amount)

    assert results_of(pay, raw_call("pay", {"amount": 4}), raw_call("pay", None)) == ["4", "1"]


def test_an_exception_is_reported_to_the_model() -> None:

    def fail():
        raise LookupError("no such order")

    class WithoutText:
        def __str__(self) -> str:
            raise TypeError("no words")

    def without_text():
        return WithoutText()

    assert results_of(fail, call("fail")) == ["tool `fail` failed: LookupError: no such order"]
    assert results_of(without_text, call("without_text")) == ["tool `without_text` failed: TypeError: no words"]


def test_a_keyboard_interrupt_ends_the_run() -> None:
    def stop():
        raise KeyboardInterrupt

    client = Client(call("stop"), "Done.")
    with pytest.raises(KeyboardInterrupt):
        ask_agents(client, Agent(functions=[stop]))
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
    wanted = {} if isinstance(function, partial) else {"city": "Rome"}
    assert results_of(function, call(name, **wanted), context_variables={"user": "Ann"}) == [shown]


def test_a_local_variable_called_context_variables_is_not_a_parameter() -> None:
    """Swarm inspects the names in the code, and calls such a function with one argument too many."""

    def local():
        context_variables = "mine"
        return context_variables  # noqa: RET504 - the name is the point

    assert results_of(local, call("local")) == ["mine"]


def test_a_function_whose_signature_is_hidden_has_no_parameters() -> None:
    def hiding(function: Any) -> Any:
        def hidden(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return hidden

    @hiding
    def to_sales():
        return Agent(name="Sales")

    assert results_of(to_sales, call("hidden")) == ['{"assistant": "Sales"}']


def test_a_parameter_whose_type_has_no_schema_gets_the_models_value() -> None:
    def hold(guide: Guide, seats: int):
        return f"{guide!r} {seats!r}"

    assert results_of(hold, call("hold", guide="g", seats="2")) == ["'g' 2"]


def test_functions_run_in_the_callers_thread() -> None:
    """Swarm programs often have a database connection that only its own thread may use."""
    database = sqlite3.connect(":memory:")
    threads: list[threading.Thread] = []

    def query():
        threads.append(threading.current_thread())
        return database.execute("select 42").fetchone()[0]

    assert results_of(query, call("query")) == ["42"]
    assert threads == [threading.current_thread()]
    database.close()


def test_functions_may_call_asyncio_run() -> None:
    async def later() -> str:
        await asyncio.sleep(0)
        return "later"

    def fetch():
        return asyncio.run(later())

    assert results_of(fetch, call("fetch")) == ["later"]


async def waited() -> str:
    await asyncio.sleep(0)
    return "waited"


def test_async_functions_are_awaited() -> None:
    assert results_of(waited, call("waited")) == ["waited"]


async def test_async_functions_are_awaited_inside_a_running_loop() -> None:
    assert results_of(waited, call("waited")) == ["waited"]


def test_the_last_of_two_functions_with_one_name_is_used() -> None:
    def make(word: str) -> Any:
        def say():
            return word

        return say

    client = Client(call("say"), "Done.")
    assert results(ask_agents(client, Agent(functions=[make("first"), make("second")]))) == ["second"]
    assert len(client.requests[0]["tools"]) == 1


def test_a_baton_tool_is_refused() -> None:
    @tool(needs_approval=True)
    def wipe() -> str:
        """Wipe the disk."""
        raise AssertionError("it must not run")

    with pytest.raises(SetupError, match="FunctionTool\\('wipe'\\) is a tool of Baton"):
        ask_agents(Client(call("wipe")), Agent(functions=[wipe]))
