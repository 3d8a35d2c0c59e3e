"""A conversation in a terminal, and the printing of what agents say (S3, S5)."""

# Swarm's programs have functions without annotations.
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

import re
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.swarm.clients import Client, Said, call

import baton.swarm.repl.repl as where_swarm_has_it
from baton.swarm import Agent, Response, Result
from baton.swarm.repl import pretty_print_messages, process_and_print_streaming_response, run_demo_loop

Typing = Callable[..., None]
streamed_or_not = pytest.mark.parametrize("stream", [False, True])


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Typing:
    """Types these lines, and then ends the input, or does whatever the last one is."""

    def type_in(*lines: str | BaseException) -> None:
        waiting = [*lines, EOFError()]

        def read(prompt: str) -> str:
            line = waiting.pop(0)
            if isinstance(line, BaseException):
                raise line
            return line

        monkeypatch.setattr("builtins.input", read)

    return type_in


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """What was printed, without colours."""
    return lambda: re.sub("\033\\[\\d+m", "", capsys.readouterr().out)


@streamed_or_not
def test_a_conversation_carries_everything_forward(stream: bool, typed: Typing, printed: Callable[[], str]) -> None:
    """S5: the variables too, which Swarm's own loop forgets."""

    def to_sales():
        return Result(value="on to sales", agent=sales, context_variables={"budget": 5})

    sales = Agent(name="Sales", instructions=lambda variables: f"{variables['user']} has {variables['budget']}")
    desk = Agent(name="Desk", functions=[to_sales])
    client = Client(Said("Moment.", call("to_sales")), "Hello!", "Bye!")
    typed("Sell me something", "Thanks")
    run_demo_loop(desk, {"user": "Ann"}, stream=stream, client=client)
    assert client.prompts == ["You are a helpful agent.", "Ann has 5", "Ann has 5"]
    said = [(message["role"], message["content"]) for message in client.requests[2]["messages"][1:]]
    assert said == [
        ("user", "Sell me something"),
        ("assistant", "Moment."),
        ("tool", "on to sales"),
        ("assistant", "Hello!"),
        ("user", "Thanks"),
    ]
    told = printed()
    for line in ("Desk: Moment.", "to_sales()", "Sales: Hello!", "Sales: Bye!"):
        assert line in told


@pytest.mark.parametrize("leaving", ["exit", " EXIT ", EOFError(), KeyboardInterrupt()])
def test_the_user_can_leave(leaving: Any, typed: Typing, printed: Callable[[], str]) -> None:
    """S5."""
    typed("Hi", leaving)
    client = Client("Hello!")
    run_demo_loop(Agent(), client=client)
    assert len(client.requests) == 1
    assert "Starting Swarm CLI" in printed()


def test_without_a_client_it_asks_openai(monkeypatch: pytest.MonkeyPatch, typed: Typing) -> None:
    client = Client("Hello!")
    monkeypatch.setitem(sys.modules, "openai", SimpleNamespace(OpenAI=lambda: client))
    typed("Hi")
    run_demo_loop(Agent(), debug=False)
    assert len(client.requests) == 1


def test_the_callers_variables_are_not_changed(typed: Typing) -> None:
    def note(context_variables):
        context_variables["seen"] = True
        return Result(context_variables={"more": 1})

    variables: dict[str, Any] = {"user": "Ann"}
    typed("Hi")
    run_demo_loop(Agent(functions=[note]), variables, client=Client(call("note"), "Done."))
    assert variables == {"user": "Ann"}


def test_a_stream_is_printed_as_it_comes(printed: Callable[[], str]) -> None:
    end = Response(messages=[])
    chunks: list[dict[str, Any]] = [
        {"delim": "start"},
        {"sender": "Desk", "role": "assistant", "content": ""},
        {"content": "One "},
        {"content": "moment", "tool_calls": None},
        {"content": None, "tool_calls": [{"function": {"name": "look", "arguments": ""}}]},
        {"tool_calls": [{"function": {"name": None, "arguments": "{}"}}]},
        {"tool_calls": [{"function": None}]},
        {"delim": "end"},
        {"sender": "Sales", "content": "Hi"},
        {"delim": "end"},
        {"response": end},
    ]
    assert process_and_print_streaming_response(iter(chunks)) is end
    assert printed() == "Desk: One momentDesk: look()\n\nSales: Hi\n"


def test_a_stream_that_breaks_off_has_no_response() -> None:
    assert process_and_print_streaming_response(iter([{"delim": "start"}, {"delim": "end"}])) is None


def test_a_loop_goes_on_after_a_stream_that_broke_off(
    monkeypatch: pytest.MonkeyPatch, typed: Typing, printed: Callable[[], str]
) -> None:
    class Broken:
        def run(self, **options: Any) -> Any:
            return iter([{"content": "half"}])

    monkeypatch.setattr(where_swarm_has_it, "Swarm", Broken)
    typed("Hi", "Hi again")
    run_demo_loop(Agent(), stream=True)
    assert printed().count("half") == 2


def test_messages_are_printed_with_their_calls(printed: Callable[[], str]) -> None:
    def made(name: str, arguments: str) -> dict[str, Any]:
        return {"function": {"name": name, "arguments": arguments}}

    pretty_print_messages(
        [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "sender": "A", "content": "Look:", "tool_calls": None},
            {"role": "assistant", "sender": "B", "content": None, "tool_calls": [made("f", '{"x": "é", "y": [1]}')]},
            {"role": "tool", "content": "found"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [made("g", "{}"), made("h", "{broken"), made("i", "[1]")],
            },
        ]
    )
    assert printed() == 'A: Look:\nB: f(x="é", y=[1])\n: \ng()\nh({broken)\ni([1])\n'


def test_everything_is_where_swarms_programs_look_for_it() -> None:
    assert where_swarm_has_it.run_demo_loop is run_demo_loop
    assert where_swarm_has_it.pretty_print_messages is pretty_print_messages
