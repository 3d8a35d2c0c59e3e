"""The requests to clients, and the handling of their responses in any form."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.swarm.clients import Client, Dumpable, Reply, ask_agents, call, chunk, results

from batonkit.errors import ModelError
from batonkit.swarm import Agent, Swarm
from batonkit.swarm.util import function_to_json


def weather(city: str) -> str:
    """The weather in a city."""
    return f"Sun in {city}."


def test_requests_have_swarms_parameters() -> None:
    agent = Agent(name="Desk", model="small", instructions="Help.", functions=[weather], tool_choice="required")
    client = Client(Reply("Hm.", call("weather", "id1", city="Rome")), "Sun.")
    ask_agents(client, agent)
    assert client.requests[0] == {
        "model": "small",
        "messages": [{"role": "system", "content": "Help."}, {"role": "user", "content": "Hi"}],
        "tools": [function_to_json(weather)],
        "tool_choice": "required",
        "stream": False,
        "parallel_tool_calls": True,
    }
    requested_calls = {
        "id": "id1",
        "function": {"name": "weather", "arguments": '{"city": "Rome"}'},
        "type": "function",
    }
    assert client.requests[1]["messages"][2:] == [
        {"role": "assistant", "content": "Hm.", "tool_calls": [requested_calls], "sender": "Desk"},
        {"role": "tool", "tool_call_id": "id1", "tool_name": "weather", "content": "Sun in Rome."},
    ]


def test_without_functions_no_tools_are_sent() -> None:
    client = Client("Hello.")
    ask_agents(client, Agent(parallel_tool_calls=False))
    assert client.requests[0]["tools"] is None
    assert client.requests[0]["tool_choice"] is None
    assert "parallel_tool_calls" not in client.requests[0]


def test_the_callers_messages_are_sent_unchanged() -> None:
    messages = [
        {"role": "developer", "content": "Be brief.", "odd": {"kept": True}},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]},
        {"role": "user", "content": ""},
    ]
    client = Client("A cat.")
    Swarm(client).run(Agent(), messages)
    assert client.requests[0]["messages"][1:] == messages


class WithDumpMethod:
    """An object with only one of the methods for dumping."""

    def __init__(self, **methods: Any) -> None:
        for name, value in methods.items():
            setattr(self, name, lambda value=value: value)


CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "tool_calls": [CALL]},
        WithDumpMethod(model_dump={"role": "assistant", "tool_calls": [CALL]}),
        WithDumpMethod(
            json='{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "weather", '
            '"arguments": "{\\"city\\": \\"Rome\\"}"}}]}'
        ),
        SimpleNamespace(role="assistant", tool_calls=(SimpleNamespace(id="1", function=CALL["function"]),)),
    ],
)
@pytest.mark.parametrize("wraps", [dict, SimpleNamespace])
def test_responses_may_be_dicts_or_objects(message: Any, wraps: Any) -> None:
    answers = [wraps(choices=[wraps(message=each)]) for each in (message, {"role": "assistant", "content": "Sun."})]

    def create(**request: Any) -> Any:
        return answers.pop(0)

    client = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    response = Swarm(client).run(Agent(functions=[weather]), [])
    assert results(response) == ["Sun in Rome."]
    assert response.messages[0]["content"] is None
    assert response.messages[-1] == {"role": "assistant", "content": "Sun.", "tool_calls": None, "sender": "Agent"}


def test_the_clients_own_objects_are_not_changed() -> None:
    message: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [{**CALL, "id": None}]}

    def create(**request: Any) -> Any:
        return {"choices": [{"message": message}]}

    client = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    response = Swarm(client).run(Agent(functions=[weather]), [], max_turns=2)
    assert response.messages[0]["sender"] == "Agent"
    assert message == {"role": "assistant", "content": "", "tool_calls": [{**CALL, "id": None}]}


@pytest.mark.parametrize("stream", [False, True])
def test_calls_without_an_id_get_one(stream: bool) -> None:
    requested_calls = Reply(None, call("weather", None, city="Rome"), call("weather", None, city="Oslo"))
    response = ask_agents(Client(requested_calls, "Done."), Agent(functions=[weather]), stream=stream)
    ids = [each["id"] for each in response.messages[0]["tool_calls"]]
    assert ids == ["call_1_0", "call_1_1"]
    assert [message["tool_call_id"] for message in response.messages[1:3]] == ids


@pytest.mark.parametrize("stream", [False, True])
def test_calls_that_share_an_id_keep_their_own_results(stream: bool) -> None:
    """Mock clients use one id for all calls."""
    requested_calls = Reply(None, call("weather", "same", city="Rome"), call("weather", "same", city="Oslo"))
    response = ask_agents(
        Client(requested_calls, call("weather", "same", city="Bern"), "Done."),
        Agent(functions=[weather]),
        stream=stream,
    )
    assert results(response) == ["Sun in Rome.", "Sun in Oslo.", "Sun in Bern."]
    assert {message["tool_call_id"] for message in response.messages if message["role"] == "tool"} == {"same"}


def test_a_call_of_another_type_is_an_unknown_tool() -> None:
    other = Dumpable(id="1", type="custom", custom=Dumpable(name="shell", input="ls"))
    response = ask_agents(Client(Reply("", other), "Done."), Agent(functions=[weather]))
    assert results(response) == ["Error: Tool  not found."]


@pytest.mark.parametrize("choices", [[], None])
def test_a_response_without_choices_raises_a_model_error(choices: Any) -> None:
    client = SimpleNamespace(
        chat=SimpleNamespace(completions=SimpleNamespace(create=lambda **request: Dumpable(choices=choices)))  # pyright: ignore
    )
    with pytest.raises(ModelError, match="returned no choices"):
        Swarm(client).run(Agent(), [])


class RateLimited(Exception):
    pass


@pytest.mark.parametrize("stream", [False, True])
def test_errors_of_the_client_reach_the_caller(stream: bool) -> None:
    cause = TimeoutError("slow")
    error = RateLimited("later")
    error.__cause__ = cause
    client = Client(call("weather", city="Rome"), error)
    with pytest.raises(RateLimited, match="later") as raised:
        ask_agents(client, Agent(functions=[weather]), stream=stream)
    assert raised.value is error
    assert raised.value.__cause__ is cause


@pytest.mark.parametrize("stream", [False, True])
def test_an_empty_response_is_an_answer(stream: bool) -> None:
    response = ask_agents(Client(Reply(None)), Agent(name="Quiet"), stream=stream)
    (message,) = response.messages
    assert not message["content"]
    assert (message["role"], message["sender"]) == ("assistant", "Quiet")


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_an_answer(stream: bool) -> None:
    """Swarm's stream fails on a refusal."""
    response = ask_agents(Client(Reply(None, refusal="I must not.")), Agent(), stream=stream)
    assert response.messages[0]["refusal"] == "I must not."


def test_empty_chunks_are_skipped() -> None:
    """The last chunk often has only the token count."""
    odd = [Dumpable(choices=[]), Dumpable(choices=None), Dumpable(choices=[Dumpable(delta=None)])]
    client = Client([*odd, chunk(role="assistant", content="Hel"), *odd, chunk(content="lo"), *odd])
    items = list(Swarm(client).run(Agent(), [], stream=True))
    assert [item["content"] for item in items if "content" in item] == ["Hel", "lo"]
    assert items[-1]["response"].messages[0]["content"] == "Hello"


def test_a_stream_may_be_a_list() -> None:
    chunks = [chunk(role="assistant", content="Hel"), {"choices": [{"delta": {"content": "lo"}}]}]

    def create(**request: Any) -> Any:
        return chunks

    client = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    items: list[Any] = list(Swarm(client).run(Agent(), [], stream=True))
    assert items[-1]["response"].messages[0]["content"] == "Hello"


def test_a_stream_without_roles_still_names_the_sender() -> None:
    client = Client([chunk(content="Hel"), chunk(content="lo")])
    items = list(Swarm(client).run(Agent(name="Ann"), [], stream=True))
    assert [item.get("sender") for item in items[1:3]] == ["Ann", None]
