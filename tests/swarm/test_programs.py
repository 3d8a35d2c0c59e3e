"""Typical Swarm programs; only their imports differ: `batonkit.swarm` instead of `swarm`.

The model is scripted; each program runs with and without streaming, with the same result.
"""

# Swarm's programs have functions without annotations.
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownLambdaType=false

import json
import sqlite3
from typing import Any

import pytest
from inline_snapshot import snapshot
from tests.swarm.clients import Client, Reply, ask_agents, call, senders

from batonkit.swarm import Agent, Response, Result, Swarm
from batonkit.swarm.repl import run_demo_loop
from batonkit.swarm.types import Result as ResultFromTypes

pytestmark = pytest.mark.parametrize("stream", [False, True])


def formatted(response: Response) -> list[str]:
    """Format each message as one line."""
    lines: list[str] = []
    for message in response.messages:
        if message["role"] == "tool":
            lines.append(f"{message['tool_name']} -> {message['content']}")
            continue
        calls = [f"{each['function']['name']}({each['function']['arguments']})" for each in message["tool_calls"] or ()]
        lines.append(f"{message['sender']}: {' + '.join(filter(None, [message['content'], *calls]))}")
    return lines


def test_weather(stream: bool) -> None:
    def get_weather(city, time="now"):
        """The weather of a city, now or at another time."""
        return json.dumps({"city": city, "degrees": 65, "time": time})

    def send_mail(to, text):
        sent.append((to, text))
        return "It is in the post."

    sent: list[Any] = []
    agent = Agent(name="Weather", instructions="Tell people the weather.", functions=[get_weather, send_mail])
    client = Client(
        call("get_weather", city="Bergen"),
        call("send_mail", to="ann@example.org", text="65 degrees"),
        "I have sent it.",
    )
    assert formatted(ask_agents(client, agent, stream=stream)) == snapshot(
        [
            'Weather: get_weather({"city": "Bergen"})',
            'get_weather -> {"city": "Bergen", "degrees": 65, "time": "now"}',
            'Weather: send_mail({"to": "ann@example.org", "text": "65 degrees"})',
            "send_mail -> It is in the post.",
            "Weather: I have sent it.",
        ]
    )
    assert sent == [("ann@example.org", "65 degrees")]


def test_triage_with_transfers_back(stream: bool) -> None:
    def back_to_desk():
        """Give the conversation back if it is not for you."""
        return desk

    def transfer_to_sales():
        return sales

    def transfer_to_refunds():
        return refunds

    def take_a_tenth_off():
        return "A tenth off."

    def desk_instructions(context_variables):
        return f"Find out what {context_variables['name']} wants."

    desk = Agent(name="Desk", instructions=desk_instructions)
    sales = Agent(name="Sales", instructions="Sell kettles.")
    refunds = Agent(name="Refunds", instructions="Give money back.", functions=[take_a_tenth_off])
    desk.functions = [transfer_to_sales, transfer_to_refunds]
    sales.functions.append(back_to_desk)
    refunds.functions.append(back_to_desk)

    client = Client(
        call("transfer_to_sales"),
        Reply("That is not for me.", call("back_to_desk")),
        call("transfer_to_refunds"),
        call("take_a_tenth_off"),
        "It is cheaper now.",
    )
    response = ask_agents(client, desk, stream=stream, context_variables={"name": "Ann"})
    assert response.agent == refunds
    assert formatted(response) == snapshot(
        [
            "Desk: transfer_to_sales({})",
            'transfer_to_sales -> {"assistant": "Sales"}',
            "Sales: That is not for me. + back_to_desk({})",
            'back_to_desk -> {"assistant": "Desk"}',
            "Desk: transfer_to_refunds({})",
            'transfer_to_refunds -> {"assistant": "Refunds"}',
            "Refunds: take_a_tenth_off({})",
            "take_a_tenth_off -> A tenth off.",
            "Refunds: It is cheaper now.",
        ]
    )
    assert client.prompts[0] == client.prompts[2] == "Find out what Ann wants."


def test_a_shop_with_a_database(stream: bool) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("create table purchases (user_id integer, item_id integer, amount real)")
    database.execute("insert into purchases values (1, 7, 50.0)")

    def refund_item(user_id, item_id):
        """Give the money for one purchase back."""
        found = database.execute(
            "select amount from purchases where user_id = ? and item_id = ?", (user_id, item_id)
        ).fetchone()
        if not found:
            return f"{user_id} never bought {item_id}."
        return ResultFromTypes(value=f"Refunded {found[0]}.", context_variables={"refunded": item_id})

    def write_to(user_id, by, context_variables):
        """Let a customer know, by phone or by mail."""
        return f"{user_id} knows about {context_variables.get('refunded')} by {by}."

    def transfer_to_refunds():
        return refunds

    refunds = Agent(name="Refunds", functions=[refund_item, write_to])
    desk = Agent(name="Desk", functions=[transfer_to_refunds])
    client = Client(
        call("transfer_to_refunds"),
        Reply(None, call("refund_item", user_id=1, item_id=9), call("refund_item", user_id=1, item_id=7)),
        call("write_to", user_id=1, by="mail"),
        "All done.",
    )
    response = ask_agents(client, desk, stream=stream, context_variables={"store": "kettles"})
    database.close()
    assert formatted(response)[2:] == snapshot(
        [
            'Refunds: refund_item({"user_id": 1, "item_id": 9}) + refund_item({"user_id": 1, "item_id": 7})',
            "refund_item -> 1 never bought 9.",
            "refund_item -> Refunded 50.0.",
            'Refunds: write_to({"user_id": 1, "by": "mail"})',
            "write_to -> 1 knows about 7 by mail.",
            "Refunds: All done.",
        ]
    )
    assert response.context_variables == {"store": "kettles", "refunded": 7}


POLICY = "First ask for the flight. Then do what the rules allow. Then close the case."


def test_airline_routing_with_policies(stream: bool) -> None:
    def to_changes():
        return changes

    def to_cancellations():
        return cancellations

    def to_luggage():
        return luggage

    def to_desk():
        """Give the passenger back if other rules apply."""
        return desk

    def fetch_supervisor(why=None):
        return f"The supervisor comes because of {why}" if why else "The supervisor comes"

    def start_refund():
        return "The money is on its way"

    def close_case():
        return "Closed"

    def desk_instructions(context_variables):
        return (
            f"Ask {context_variables['passenger']} on {context_variables.get('flight')}, {context_variables['seat']!r}."
        )

    desk = Agent(
        name="Desk",
        instructions=desk_instructions,
        functions=[to_changes, to_luggage],
    )
    changes = Agent(
        name="Changes",
        instructions="What is to be changed?",
        functions=[to_cancellations],
        parallel_tool_calls=False,
    )
    cancellations = Agent(
        name="Cancellations",
        instructions=POLICY,
        functions=[fetch_supervisor, start_refund, to_desk, close_case],
    )
    luggage = Agent(name="Luggage", instructions=POLICY, functions=[to_desk])
    client = Client(
        call("to_changes"),
        call("to_cancellations"),
        call("fetch_supervisor"),
        call("start_refund"),
        call("upgrade"),
        call("to_desk"),
        call("to_luggage"),
        "Tell me about your bag.",
    )
    context = {"passenger": "Ann", "flight": "BA 12"}
    response = ask_agents(client, desk, stream=stream, context_variables=context)
    assert response.agent is luggage
    assert client.prompts == [
        "Ask Ann on BA 12, ''.",
        "What is to be changed?",
        *[POLICY] * 4,
        "Ask Ann on BA 12, ''.",
        POLICY,
    ]
    assert formatted(response)[4:] == snapshot(
        [
            "Cancellations: fetch_supervisor({})",
            "fetch_supervisor -> The supervisor comes",
            "Cancellations: start_refund({})",
            "start_refund -> The money is on its way",
            "Cancellations: upgrade({})",
            "upgrade -> Error: Tool upgrade not found.",
            "Cancellations: to_desk({})",
            'to_desk -> {"assistant": "Desk"}',
            "Desk: to_luggage({})",
            'to_luggage -> {"assistant": "Luggage"}',
            "Luggage: Tell me about your bag.",
        ]
    )
    assert [request.get("parallel_tool_calls") for request in client.requests[:3]] == [True, False, True]


def test_an_evaluation_of_which_function_is_called(stream: bool) -> None:
    def transfer_to_sales():
        return Agent(name="Sales")

    agent = Agent(functions=[transfer_to_sales])
    client = Client(call("transfer_to_sales"), "Hello!")
    calls = [
        ask_agents(client, agent, stream=stream, text=query, execute_tools=False).messages[-1].get("tool_calls")
        for query in ("Sell me something", "Hi")
    ]
    assert [made and made[0]["function"]["name"] for made in calls] == ["transfer_to_sales", None]


def test_a_custom_conversation_loop(stream: bool) -> None:
    def speak_spanish():
        return Result(agent=spanish, context_variables={"language": "es"})

    spanish = Agent(name="Spanish", instructions="Answer in Spanish.")
    agent: Any = Agent(name="English", instructions="Answer in English.", functions=[speak_spanish])
    client = Client("Hello.", call("speak_spanish"), "Hola.", "Adiós.")
    swarm = Swarm(client=client)
    messages: list[Any] = []
    variables: dict[str, Any] = {}
    for line in ("Hi", "Hola", "Adiós"):
        messages.append({"role": "user", "content": line})
        run: Any = swarm.run
        outcome = run(agent=agent, messages=messages, context_variables=variables, stream=stream)
        response: Response = list(outcome)[-1]["response"] if stream else outcome
        messages += response.messages
        agent, variables = response.agent, response.context_variables
    assert [message["role"] for message in messages].count("user") == 3
    assert senders(Response(messages=messages)) == ["English", "English", "Spanish", "Spanish"]
    assert variables == {"language": "es"}


def test_the_demo_loop(stream: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["What is the weather?", "exit"]
    monkeypatch.setattr("builtins.input", lambda prompt: lines.pop(0))
    agent = Agent(name="Weather", functions=[get_weather])
    run_demo_loop(agent, stream=stream, client=Client(call("get_weather"), "Sunny."))
    assert "Sunny." in capsys.readouterr().out


def get_weather() -> str:
    return "sun"
