"""What clients are asked, and what is made of their answers, whatever they are made of (S3, S5)."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.swarm.clients import Client, Dumping, Said, asked, call, chunk, results

from baton.errors import ModelError
from baton.swarm import Agent, Swarm
from baton.swarm.util import function_to_json


def weather(city: str) -> str:
    """The weather in a city."""
    return f"Sun in {city}."


def test_a_client_is_asked_as_swarm_asks_it() -> None:
    agent = Agent(name="Desk", model="small", instructions="Help.", functions=[weather], tool_choice="required")
    client = Client(Said("Hm.", call("weather", "id1", city="Rome")), "Sun.")
    asked(client, agent)
    assert client.requests[0] == {
        "model": "small",
        "messages": [{"role": "system", "content": "Help."}, {"role": "user", "content": "Hi"}],
        "tools": [function_to_json(weather)],
        "tool_choice": "required",
        "stream": False,
        "parallel_tool_calls": True,
    }
    made = {"id": "id1", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}, "type": "function"}
    assert client.requests[1]["messages"][2:] == [
        {"role": "assistant", "content": "Hm.", "tool_calls": [made], "sender": "Desk"},
        {"role": "tool", "tool_call_id": "id1", "tool_name": "weather", "content": "Sun in Rome."},
    ]


def test_without_functions_no_tools_are_mentioned() -> None:
    client = Client("Hello.")
    asked(client, Agent(parallel_tool_calls=False))
    assert client.requests[0]["tools"] is None
    assert client.requests[0]["tool_choice"] is None
    assert "parallel_tool_calls" not in client.requests[0]


def test_messages_are_sent_as_the_caller_wrote_them() -> None:
    messages = [
        {"role": "developer", "content": "Be brief.", "odd": {"kept": True}},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]},
        {"role": "user", "content": ""},
    ]
    client = Client("A cat.")
    Swarm(client).run(Agent(), messages)
    assert client.requests[0]["messages"][1:] == messages


class ByMethod:
    """Something that knows only one way to dump itself."""

    def __init__(self, **methods: Any) -> None:
        for name, value in methods.items():
            setattr(self, name, lambda value=value: value)


CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "tool_calls": [CALL]},
        ByMethod(model_dump={"role": "assistant", "tool_calls": [CALL]}),
        ByMethod(
            json='{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "weather", '
            '"arguments": "{\\"city\\": \\"Rome\\"}"}}]}'
        ),
        SimpleNamespace(role="assistant", tool_calls=(SimpleNamespace(id="1", function=CALL["function"]),)),
    ],
)
@pytest.mark.parametrize("wraps", [dict, SimpleNamespace])
def test_answers_are_read_whatever_they_are_made_of(message: Any, wraps: Any) -> None:
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
    made = Said(None, call("weather", None, city="Rome"), call("weather", None, city="Oslo"))
    response = asked(Client(made, "Done."), Agent(functions=[weather]), stream=stream)
    ids = [each["id"] for each in response.messages[0]["tool_calls"]]
    assert ids == ["call_1_0", "call_1_1"]
    assert [message["tool_call_id"] for message in response.messages[1:3]] == ids


@pytest.mark.parametrize("stream", [False, True])
def test_calls_that_share_an_id_are_told_apart(stream: bool) -> None:
    """Mock clients give one id to all."""
    made = Said(None, call("weather", "same", city="Rome"), call("weather", "same", city="Oslo"))
    response = asked(
        Client(made, call("weather", "same", city="Bern"), "Done."), Agent(functions=[weather]), stream=stream
    )
    assert results(response) == ["Sun in Rome.", "Sun in Oslo.", "Sun in Bern."]
    assert {message["tool_call_id"] for message in response.messages if message["role"] == "tool"} == {"same"}


def test_a_call_that_is_not_of_a_function_is_unknown() -> None:
    other = Dumping(id="1", type="custom", custom=Dumping(name="shell", input="ls"))
    response = asked(Client(Said("", other), "Done."), Agent(functions=[weather]))
    assert results(response) == ["Error: Tool  not found."]


@pytest.mark.parametrize("choices", [[], None])
def test_an_answer_without_choices_says_so(choices: Any) -> None:
    client = SimpleNamespace(
        chat=SimpleNamespace(completions=SimpleNamespace(create=lambda **request: Dumping(choices=choices)))  # pyright: ignore
    )
    with pytest.raises(ModelError, match="returned no choices"):
        Swarm(client).run(Agent(), [])


class RateLimited(Exception):
    pass


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_client_raises_reaches_the_caller(stream: bool) -> None:
    cause = TimeoutError("slow")
    error = RateLimited("later")
    error.__cause__ = cause
    client = Client(call("weather", city="Rome"), error)
    with pytest.raises(RateLimited, match="later") as raised:
        asked(client, Agent(functions=[weather]), stream=stream)
    assert raised.value is error
    assert raised.value.__cause__ is cause


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_of_nothing_is_an_answer(stream: bool) -> None:
    response = asked(Client(Said(None)), Agent(name="Quiet"), stream=stream)
    (message,) = response.messages
    assert not message["content"]
    assert (message["role"], message["sender"]) == ("assistant", "Quiet")


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_an_answer(stream: bool) -> None:
    """S5: Swarm's stream breaks at one."""
    response = asked(Client(Said(None, refusal="I must not.")), Agent(), stream=stream)
    assert response.messages[0]["refusal"] == "I must not."


def test_chunks_of_nothing_are_passed_over() -> None:
    """S5: the last chunk often brings the token count alone."""
    odd = [Dumping(choices=[]), Dumping(choices=None), Dumping(choices=[Dumping(delta=None)])]
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


def test_a_stream_without_roles_says_who_speaks_all_the_same() -> None:
    client = Client([chunk(content="Hel"), chunk(content="lo")])
    items = list(Swarm(client).run(Agent(name="Ann"), [], stream=True))
    assert [item.get("sender") for item in items[1:3]] == ["Ann", None]
