"""`RedactPII`."""

from typing import Any

import pytest

from batonkit import Agent, Runner, SetupError, tool
from batonkit.log import TextDelta
from batonkit.messages import AssistantMessage, Reasoning, UserMessage, text_of
from batonkit.middleware import RedactPII
from batonkit.models import ModelResponse
from batonkit.testing import ScriptedModel, call, say

TEXT = "I am ada@example.org, +49 30 1234567, card 4111 1111 1111 1111, DE89 3704 0044 0532 0130 00, 192.168.0.17."


def reads(request: Any) -> list[str]:
    return [text_of(message.content) for message in request.messages]


async def test_the_model_reads_placeholders_and_the_log_keeps_the_values() -> None:
    model = ScriptedModel(["Hello."])
    result = await Runner(Agent("A", model=model, middleware=[RedactPII()])).run(TEXT)
    assert reads(model.requests[0]) == [
        "I am [email removed], [phone removed], card [card removed], [iban removed], [ip removed]."
    ]
    assert text_of(result.messages[0].content) == TEXT


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("BE68 5390 0754 7034 PAID", "[iban removed] PAID"),
        ("GB82WEST12345698765432, please", "[iban removed], please"),
        ("GB83WEST12345698765432", "GB83WEST12345698765432"),
        ("from 10.0.0.1 to 2001:db8::ff00:42:8329", "from [ip removed] to [ip removed]"),
        ("at 12:30:45 on 1.2.3, std::map", "at 12:30:45 on 1.2.3, std::map"),
        ("300.1.1.1 and 1.2.3.4.5", "300.1.1.1 and 1.2.3.4.5"),
        # The Luhn check fails.
        ("4111 1111 1111 1112", "4111 1111 1111 1112"),
    ],
)
async def test_accounts_and_addresses_are_checked(text: str, expected: str) -> None:
    model = ScriptedModel(["Hello."])
    await Runner(Agent("A", model=model, middleware=[RedactPII(["iban", "ip", "card"])])).run(text)
    assert reads(model.requests[0]) == [expected]


async def test_placeholders_in_calls_and_answers_are_restored() -> None:
    sent: list[str] = []

    @tool
    async def send(address: str, text: str) -> str:
        """Send a mail."""
        sent.append(address)
        return f"sent to {address}"

    steps = [call("send", address="[email 2]", text="Hi"), "I wrote to [email 2], not to [email 1]."]
    model = ScriptedModel(steps)
    runner = Runner(Agent("A", model=model, tools=[send], middleware=[RedactPII(restore=True)]))
    result = await runner.run("Not to a@example.org: write to b@example.org, yes, b@example.org!")
    assert reads(model.requests[0]) == ["Not to [email 1]: write to [email 2], yes, [email 2]!"]
    assert reads(model.requests[1])[-1] == "sent to [email 2]"
    assert '"[email 2]"' in str(model.requests[1].messages[1])
    assert sent == ["b@example.org"]
    assert result.output == "I wrote to b@example.org, not to a@example.org."


async def test_restored_arguments_are_valid_json() -> None:
    seen: list[str] = []

    @tool
    async def keep(name: str) -> str:
        """Keep a name."""
        seen.append(name)
        return "kept"

    model = ScriptedModel([call("keep", name="[quoted 1]"), "done"])
    middleware = RedactPII({"quoted": r'"\w+\\\w+"'}, restore=True)
    await Runner(Agent("A", model=model, tools=[keep], middleware=[middleware])).run(r'It is "C:\\temp" and "a\b".')
    assert seen == [r'"a\b"']


async def test_deltas_have_the_restored_values_only() -> None:
    runner = Runner(Agent("A", model=ScriptedModel(["Hi [email 1]!"]), middleware=[RedactPII(restore=True)]))
    async with runner.stream("a@example.org") as run:
        text = "".join([event.text async for event in run if isinstance(event, TextDelta)])
    assert text == "Hi a@example.org!"


async def test_own_patterns_can_be_added() -> None:
    model = ScriptedModel(["Hello."])
    await Runner(Agent("A", model=model, middleware=[RedactPII(also={"order": r"A-\d+"})])).run("A-17 of a@b.org")
    assert reads(model.requests[0]) == ["[order removed] of [email removed]"]


async def test_reasoning_is_kept_because_its_provider_wrote_it() -> None:
    thought = AssistantMessage("Mail a@b.org.", (), (Reasoning("hm", "scripted"),))
    model = ScriptedModel([ModelResponse(thought), say("Done.")])
    runner = Runner(Agent("A", model=model, middleware=[RedactPII()]))
    first = await runner.run("Hi")
    await runner.run([*first.messages, UserMessage("And?")])
    (_, said, _) = model.requests[1].messages
    assert isinstance(said, AssistantMessage)
    assert (said.content, said.reasoning) == ("Mail [email removed].", thought.reasoning)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patterns": ["iban", "shoe"]}, "RedactPII has no pattern `shoe`; it has `card`, .*`iban`, `ip`"),
        ({"also": {"x": "("}}, "the pattern `x` given to RedactPII is not a regular expression"),
    ],
)
def test_wrong_patterns_say_what_works(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        RedactPII(**options)
