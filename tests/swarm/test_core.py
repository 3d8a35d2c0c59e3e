"""One run, streamed or not."""

# Swarm's programs have functions without annotations.
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownLambdaType=false

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from tests.swarm.clients import Client, Reply, ask_agents, call, results, senders

from batonkit.context import RunContext
from batonkit.errors import SetupError
from batonkit.swarm import Agent, Response, Result, Swarm
from batonkit.swarm.core import Swarm as SwarmFromCore

with_and_without_stream = pytest.mark.parametrize("stream", [False, True])


def ping() -> str:
    return "pong"


@with_and_without_stream
def test_a_response_has_swarms_message_format(stream: bool) -> None:
    agent = Agent(name="Desk")
    response = ask_agents(Client("Hello there"), agent, stream=stream)
    assert isinstance(response, Response)
    (message,) = response.messages
    assert (message["role"], message["content"], message["sender"]) == ("assistant", "Hello there", "Desk")
    assert message["tool_calls"] is None
    assert response.agent is agent
    assert response.context_variables == {}


@with_and_without_stream
def test_a_function_that_returns_an_agent_transfers_to_it(stream: bool) -> None:
    def to_sales():
        return sales

    desk = Agent(name="Desk", model="a", instructions="Route.", functions=[to_sales])
    sales = Agent(name="Sales", model="b", instructions="Sell.")
    client = Client(Reply("One moment.", call("to_sales", "1")), "Buy!")
    response = ask_agents(client, desk, stream=stream)
    assert response.agent is sales
    assert senders(response) == ["Desk", "Sales"]
    assert results(response) == ['{"assistant": "Sales"}']
    assert client.models == ["a", "b"]
    assert client.prompts == ["Route.", "Sell."]
    # The other agent gets the messages unchanged.
    assert client.requests[1]["messages"][2:] == response.messages[:2]


@with_and_without_stream
def test_agents_with_the_same_name_are_distinct(stream: bool) -> None:
    def switch():
        return second

    first = Agent(instructions="first", functions=[switch])
    second = Agent(instructions="second")
    client = Client(call("switch"), "Done.")
    assert ask_agents(client, first, stream=stream).agent is second
    assert client.prompts == ["first", "second"]


def test_an_agent_may_return_itself_or_have_no_name() -> None:
    def again():
        return agent

    agent = Agent(name="", functions=[again])
    response = ask_agents(Client(call("again"), call("again"), "Done."), agent)
    assert response.agent is agent
    assert senders(response) == ["", "", ""]


@with_and_without_stream
def test_the_last_returned_agent_wins(stream: bool) -> None:
    def to_a():
        return Result(value="to a", agent=a, context_variables={"via": "a"})

    def to_b():
        return b

    a, b = Agent(name="A"), Agent(name="B")
    desk = Agent(functions=[to_a, to_b, ping])
    requested_calls = Reply(None, call("to_a"), call("to_b"), call("ping"))
    response = ask_agents(Client(requested_calls, "I am B."), desk, stream=stream)
    assert response.agent is b
    assert results(response) == ["to a", '{"assistant": "B"}', "pong"]
    assert response.context_variables == {"via": "a"}


@with_and_without_stream
def test_the_callers_messages_and_variables_are_not_changed(stream: bool) -> None:
    def change(context_variables):
        context_variables["deep"]["list"].append(2)
        return Result(context_variables={"new": 1})

    messages: list[Any] = [{"role": "user", "content": "Hi", "deep": [1]}]
    variables: dict[str, Any] = {"deep": {"list": [1]}}
    run: Any = Swarm(Client(call("change"), "Done.")).run
    outcome = run(Agent(functions=[change]), messages, variables, stream=stream)
    response = list(outcome)[-1]["response"] if stream else outcome
    assert messages == [{"role": "user", "content": "Hi", "deep": [1]}]
    assert variables == {"deep": {"list": [1]}}
    assert response.context_variables == {"deep": {"list": [1, 2]}, "new": 1}


def test_updates_from_a_result_reach_later_turns_and_not_the_same_one() -> None:
    def count(context_variables):
        return Result(value=str(context_variables["n"]), context_variables={"n": context_variables["n"] + 1})

    agent = Agent(functions=[count], instructions=lambda variables: f"n is {variables['n']}")
    client = Client(Reply(None, call("count"), call("count")), call("count"), "Done.")
    response = ask_agents(client, agent, context_variables={"n": 1})
    assert results(response) == ["1", "1", "2"]
    assert client.prompts == ["n is 1", "n is 2", "n is 3"]
    assert response.context_variables == {"n": 3}


def test_context_variables_may_be_any_objects() -> None:
    """They cannot be encoded as JSON, and some cannot be copied."""
    lock = threading.Lock()
    opened: list[Any] = []

    def use(context_variables):
        with context_variables["tools"]["lock"]:
            opened.append(context_variables["tools"]["lock"])
        context_variables["seen"].append("used")
        return Result(context_variables={"other": lock, 5: "any key"})

    variables = {"tools": {"lock": lock}, "locks": [lock], "seen": [], "plain": {"a": [1]}}
    response = ask_agents(Client(call("use"), "Done."), Agent(functions=[use]), context_variables=variables)
    assert opened == response.context_variables["locks"] == [lock]
    assert response.context_variables["other"] is lock
    assert response.context_variables["seen"] == ["used"]
    assert response.context_variables[5] == "any key"
    assert variables["seen"] == []


def test_instructions_may_be_a_function_of_the_variables() -> None:
    def instructions(context_variables):
        context_variables["written"] = "lost"
        return f"For {context_variables['user']}, not {context_variables['missing']!r}."

    client = Client("Hi.")
    response = ask_agents(client, Agent(instructions=instructions), context_variables={"user": "Ann"})
    assert client.prompts == ["For Ann, not ''."]
    assert response.context_variables == {"user": "Ann"}


@pytest.mark.parametrize("instructions", [lambda: "None needed.", lambda variables=None: "None needed.", str])
def test_instructions_may_take_nothing(instructions: Any) -> None:
    client = Client("Hi.")
    ask_agents(client, Agent(instructions=instructions))
    assert client.prompts[0] in ("None needed.", "defaultdict(<class 'str'>, {})")


async def test_instructions_may_be_async() -> None:
    async def instructions(variables: Any) -> str:
        return f"For {variables['user']}."

    client = Client("Hi.")
    ask_agents(client, Agent(instructions=instructions), context_variables={"user": "Ann"})
    assert client.prompts == ["For Ann."]


def test_errors_in_instructions_reach_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        ask_agents(Client("Hi."), Agent(instructions=lambda variables: str(1 / 0)))


def test_a_model_override_applies_to_all_agents() -> None:
    def on():
        return Agent(name="B", model="b")

    client = Client(call("on"), "Done.")
    ask_agents(client, Agent(name="A", model="a", functions=[on]), model_override="both")
    assert client.models == ["both", "both"]


@with_and_without_stream
@pytest.mark.parametrize(("max_turns", "messages"), [(0, 0), (1, 3), (3, 3), (4, 5), (5, 5), (6, 6), (99, 6)])
def test_max_turns_counts_new_messages(max_turns: int, messages: int, stream: bool) -> None:
    client = Client(Reply(None, call("ping"), call("ping")), call("ping"), "Done.")
    response = ask_agents(client, Agent(functions=[ping]), stream=stream, max_turns=max_turns)
    assert len(response.messages) == messages


@with_and_without_stream
def test_after_max_turns_the_returned_agent_is_active(stream: bool) -> None:
    def to_b():
        return Result(agent=b, context_variables={"via": "a"})

    b = Agent(name="B")
    response = ask_agents(Client(call("to_b")), Agent(name="A", functions=[to_b]), stream=stream, max_turns=2)
    assert response.agent is b
    assert response.context_variables == {"via": "a"}
    assert [message["role"] for message in response.messages] == ["assistant", "tool"]


def test_only_max_turns_limits_a_long_run() -> None:
    """Baton's limits on model calls, transfers, loops and corrections do not apply."""

    def switch(context_variables):
        return b if context_variables["turn"].append(1) or len(context_variables["turn"]) % 2 else a

    a, b = Agent(name="A", functions=[switch]), Agent(name="B", functions=[switch])
    client = Client(*[call("switch") for _ in range(150)], *[call("nowhere") for _ in range(50)], "Done.")
    response = ask_agents(client, a, context_variables={"turn": []})
    assert len(client.requests) == 201
    assert response.agent is a
    assert response.messages[-1]["content"] == "Done."


@with_and_without_stream
def test_with_execute_tools_off_the_calls_are_returned(stream: bool) -> None:
    def never():
        raise AssertionError("it must not run")

    client = Client(Reply("Look:", call("never", "1")))
    response = ask_agents(client, Agent(functions=[never]), stream=stream, execute_tools=False)
    (message,) = response.messages
    assert message["content"] == "Look:"
    assert message["tool_calls"] == [{"id": "1", "function": {"name": "never", "arguments": "{}"}, "type": "function"}]


@with_and_without_stream
def test_an_unknown_function_is_reported_to_the_model(stream: bool) -> None:
    requested_calls = Reply(None, call("nowhere", "1"), call("ping", "2"))
    response = ask_agents(Client(requested_calls, "Sorry."), Agent(functions=[ping]), stream=stream)
    assert response.messages[1:3] == [
        {"role": "tool", "tool_call_id": "1", "tool_name": "nowhere", "content": "Error: Tool nowhere not found."},
        {"role": "tool", "tool_call_id": "2", "tool_name": "ping", "content": "pong"},
    ]
    assert response.messages[-1]["content"] == "Sorry."


def test_calls_of_a_turn_run_in_order() -> None:
    order: list[str] = []

    def record(word):
        order.append(word)

    ask_agents(Client(Reply(None, *[call("record", word=word) for word in "abc"]), "Done."), Agent(functions=[record]))
    assert order == ["a", "b", "c"]


def test_agents_may_be_changed_during_a_run() -> None:
    def learn():
        agent.functions.append(ping)
        agent.model = "wiser"
        agent.instructions = "Ping."
        agent.tool_choice = None
        return "learnt"

    agent = Agent(model="new", functions=[learn], tool_choice="required")
    client = Client(call("learn"), call("ping"), "Done.")
    response = ask_agents(client, agent)
    assert results(response) == ["learnt", "pong"]
    assert client.models == ["new", "wiser", "wiser"]
    assert client.prompts[1] == "Ping."
    assert [request["tool_choice"] for request in client.requests] == ["required", None, None]


def test_an_agent_that_was_returned_may_be_changed_in_the_same_turn() -> None:
    def to_b():
        return b

    def teach():
        b.functions.append(ping)

    b = Agent(name="B")
    requested_calls = Reply(None, call("to_b"), call("teach"))
    response = ask_agents(Client(requested_calls, call("ping"), "Done."), Agent(functions=[to_b, teach]))
    assert response.agent is b
    assert results(response) == ['{"assistant": "B"}', "None", "pong"]


def test_a_stream_yields_swarms_items_in_order() -> None:
    def to_b():
        return Agent(name="B")

    client = Client(call("to_b", "1"), "Hi you")
    items: list[Any] = list(Swarm(client).run(Agent(name="A", functions=[to_b]), [], stream=True))
    delims = [position for position, item in enumerate(items) if "delim" in item]
    assert [items[position]["delim"] for position in delims] == ["start", "end", "start", "end"]
    assert (delims[0], delims[-1]) == (0, len(items) - 2)
    assert items[1]["sender"] == "A"
    assert items[delims[2] + 1]["sender"] == "B"
    assert "".join(item.get("content") or "" for item in items) == "Hi you"
    assert items[2]["tool_calls"] is None
    assert items[3]["tool_calls"][0]["function"]["name"] == "to_b"
    assert list(items[-1]) == ["response"]
    assert senders(items[-1]["response"]) == ["A", "B"]
    # Items are not changed after they were yielded.
    assert items[1]["role"] == "assistant"


def test_a_stream_reads_from_the_client_only_on_demand() -> None:
    client = Client("one two three")
    items = Swarm(client).run(Agent(), [], stream=True)
    assert client.requests == []
    assert next(items) == {"delim": "start"}
    assert (len(client.requests), client.pulled) == (1, 0)
    next(items)
    assert client.pulled == 1
    assert next(items)["content"] == "one "
    assert client.pulled == 2


def test_leaving_a_stream_early_closes_the_clients_stream() -> None:
    client = Client("one two three")
    items: Any = Swarm(client).run(Agent(), [], stream=True)
    assert [next(items) for _ in range(3)][2]["content"] == "one "
    assert not client.is_closed
    items.close()
    assert client.is_closed
    assert list(items) == []


async def test_a_stream_can_be_left_early_inside_a_running_loop() -> None:
    client = Client("one two three")
    for item in Swarm(client).run(Agent(), [], stream=True):
        if item.get("content") == "one ":
            break
    assert client.pulled == 2
    assert client.is_closed


@with_and_without_stream
async def test_run_works_inside_a_running_loop(stream: bool) -> None:
    """As in a notebook."""
    response = ask_agents(Client(call("ping"), "Done."), Agent(functions=[ping]), stream=stream)
    assert results(response) == ["pong"]


@with_and_without_stream
def test_a_function_may_run_agents_itself(stream: bool) -> None:
    def research(topic):
        return ask_agents(Client(call("ping"), f"All about {topic}."), Agent(functions=[ping])).messages[-1]["content"]

    client = Client(call("research", topic="tea"), "Done.")
    assert results(ask_agents(client, Agent(functions=[research]), stream=stream)) == ["All about tea."]


def test_interleaved_runs_are_independent() -> None:
    agent = Agent(name="Shared", functions=[ping])
    streams: list[Any] = [Swarm(Client(call("ping"), text)).run(agent, [], stream=True) for text in ("one", "two")]
    seen: list[list[Any]] = [[], []]
    for _ in range(20):
        for position, stream in enumerate(streams):
            seen[position].extend(item for item in [next(stream, None)] if item)
    assert [items[-1]["response"].messages[-1]["content"] for items in seen] == ["one", "two"]


def test_debug_prints_requests_calls_and_results(capsys: pytest.CaptureFixture[str]) -> None:
    client = Client(Reply("", call("ping"), call("nowhere")), "Done.")
    ask_agents(client, Agent(name="Desk", functions=[ping]), debug=True, max_turns=3)
    printed = capsys.readouterr().out
    for wanted in ("Asking gpt-4o for Desk", "Received:", "Calling ping with {}", "Result of ping: pong", "not found"):
        assert wanted in printed
    assert "No turns left." in printed
    ask_agents(Client("Quiet."), Agent())
    assert capsys.readouterr().out == ""


@with_and_without_stream
def test_without_an_agent_the_response_is_empty(stream: bool) -> None:
    none: Any = None
    assert ask_agents(Client(), none, stream=stream, context_variables={"a": 1}) == Response(context_variables={"a": 1})


def test_without_a_client_openais_is_created_on_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    requested_calls = Client("Hi.")
    monkeypatch.setitem(sys.modules, "openai", SimpleNamespace(OpenAI=lambda: requested_calls))
    swarm = Swarm()
    assert swarm.run(Agent(), []).messages[0]["content"] == "Hi."
    assert swarm.client is requested_calls
    swarm.client = other = Client("Ho.")
    assert swarm.run(Agent(), []).messages[0]["content"] == "Ho."
    assert len(other.requests) == 1


def test_without_openai_the_error_says_how_to_fix_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(
        SetupError, match=r"Swarm\(\) without client=… needs `openai`.*pip install 'batonkit\[openai-sdk\]'"
    ):
        Swarm().run(Agent(), [])


def test_a_subclass_that_overrides_an_unused_method_is_refused() -> None:
    with pytest.raises(SetupError, match="`Durable` overrides `handle_tool_calls`"):
        type("Durable", (Swarm,), {"handle_tool_calls": ping})
    assert issubclass(type("Named", (Swarm,), {"name": "mine"}), Swarm)


def test_an_interrupt_raises_a_setup_error() -> None:
    async def ask(ctx: RunContext[Any]) -> str:
        return await ctx.interrupt("Sure?")

    with pytest.raises(SetupError, match="which Swarm cannot answer"):
        ask_agents(Client(call("ask")), Agent(functions=[ask]))


def test_swarm_can_be_imported_from_core() -> None:
    assert SwarmFromCore is Swarm
