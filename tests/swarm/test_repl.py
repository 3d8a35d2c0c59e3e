"""The demo loop in a terminal, and the printing of messages."""

# Swarm's programs have functions without annotations.
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

import re
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.swarm.clients import Client, Reply, call

import batonkit.swarm.repl.repl as repl_module
from batonkit.swarm import Agent, Response, Result
from batonkit.swarm.repl import pretty_print_messages, process_and_print_streaming_response, run_demo_loop

TypeLines = Callable[..., None]
with_and_without_stream = pytest.mark.parametrize("stream", [False, True])


@pytest.fixture
def type_lines(monkeypatch: pytest.MonkeyPatch) -> TypeLines:
    """Return a function that sets the lines of the input; an exception is raised at its position."""

    def set_lines(*lines: str | BaseException) -> None:
        remaining = [*lines, EOFError()]

        def read(prompt: str) -> str:
            line = remaining.pop(0)
            if isinstance(line, BaseException):
                raise line
            return line

        monkeypatch.setattr("builtins.input", read)

    return set_lines


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """Return a function that gives the printed text without colours."""
    return lambda: re.sub("\033\\[\\d+m", "", capsys.readouterr().out)


@with_and_without_stream
def test_the_loop_keeps_agent_messages_and_variables(
    stream: bool, type_lines: TypeLines, printed: Callable[[], str]
) -> None:
    """Including the context variables, which Swarm's own loop drops."""

    def to_sales():
        return Result(value="on to sales", agent=sales, context_variables={"budget": 5})

    sales = Agent(name="Sales", instructions=lambda variables: f"{variables['user']} has {variables['budget']}")
    desk = Agent(name="Desk", functions=[to_sales])
    client = Client(Reply("Moment.", call("to_sales")), "Hello!", "Bye!")
    type_lines("Sell me something", "Thanks")
    run_demo_loop(desk, {"user": "Ann"}, stream=stream, client=client)
    assert client.prompts == ["You are a helpful agent.", "Ann has 5", "Ann has 5"]
    sent = [(message["role"], message["content"]) for message in client.requests[2]["messages"][1:]]
    assert sent == [
        ("user", "Sell me something"),
        ("assistant", "Moment."),
        ("tool", "on to sales"),
        ("assistant", "Hello!"),
        ("user", "Thanks"),
    ]
    output = printed()
    for line in ("Desk: Moment.", "to_sales()", "Sales: Hello!", "Sales: Bye!"):
        assert line in output


@pytest.mark.parametrize("leaving", ["exit", " EXIT ", EOFError(), KeyboardInterrupt()])
def test_the_user_can_end_the_loop(leaving: Any, type_lines: TypeLines, printed: Callable[[], str]) -> None:
    type_lines("Hi", leaving)
    client = Client("Hello!")
    run_demo_loop(Agent(), client=client)
    assert len(client.requests) == 1
    assert "Starting Swarm CLI" in printed()


def test_without_a_client_openais_is_used(monkeypatch: pytest.MonkeyPatch, type_lines: TypeLines) -> None:
    client = Client("Hello!")
    monkeypatch.setitem(sys.modules, "openai", SimpleNamespace(OpenAI=lambda: client))
    type_lines("Hi")
    run_demo_loop(Agent(), debug=False)
    assert len(client.requests) == 1


def test_the_callers_variables_are_not_changed(type_lines: TypeLines) -> None:
    def record(context_variables):
        context_variables["seen"] = True
        return Result(context_variables={"more": 1})

    variables: dict[str, Any] = {"user": "Ann"}
    type_lines("Hi")
    run_demo_loop(Agent(functions=[record]), variables, client=Client(call("record"), "Done."))
    assert variables == {"user": "Ann"}


def test_a_stream_is_printed_chunk_by_chunk(printed: Callable[[], str]) -> None:
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


def test_an_incomplete_stream_has_no_response() -> None:
    assert process_and_print_streaming_response(iter([{"delim": "start"}, {"delim": "end"}])) is None


def test_the_loop_continues_after_an_incomplete_stream(
    monkeypatch: pytest.MonkeyPatch, type_lines: TypeLines, printed: Callable[[], str]
) -> None:
    class IncompleteSwarm:
        def run(self, **options: Any) -> Any:
            return iter([{"content": "half"}])

    monkeypatch.setattr(repl_module, "Swarm", IncompleteSwarm)
    type_lines("Hi", "Hi again")
    run_demo_loop(Agent(), stream=True)
    assert printed().count("half") == 2


def test_messages_are_printed_with_their_calls(printed: Callable[[], str]) -> None:
    def call_of(name: str, arguments: str) -> dict[str, Any]:
        return {"function": {"name": name, "arguments": arguments}}

    pretty_print_messages(
        [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "sender": "A", "content": "Look:", "tool_calls": None},
            {"role": "assistant", "sender": "B", "content": None, "tool_calls": [call_of("f", '{"x": "é", "y": [1]}')]},
            {"role": "tool", "content": "found"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [call_of("g", "{}"), call_of("h", "{broken"), call_of("i", "[1]")],
            },
        ]
    )
    assert printed() == 'A: Look:\nB: f(x="é", y=[1])\n: \ng()\nh({broken)\ni([1])\n'


def test_the_functions_can_be_imported_from_swarms_module() -> None:
    assert repl_module.run_demo_loop is run_demo_loop
    assert repl_module.pretty_print_messages is pretty_print_messages


UNSAFE = "\x1b[2J\x9b31m\u202egnp\x7f"


@with_and_without_stream
def test_nothing_that_is_printed_controls_the_terminal(
    stream: bool, type_lines: TypeLines, printed: Callable[[], str]
) -> None:
    def look(text: str) -> str:
        return text

    desk = Agent(name=f"Desk{UNSAFE}", functions=[look])
    client = Client(Reply(UNSAFE, call("look", text=UNSAFE)), UNSAFE)
    type_lines("Look")
    run_demo_loop(desk, stream=stream, debug=True, client=client)
    output = printed()
    assert "␛[2J�31m�gnp�" in output
    assert not re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e]", output)
