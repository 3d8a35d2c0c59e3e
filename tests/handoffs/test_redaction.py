"""What redaction finds, what it leaves alone, and every place in a message where it looks."""

import json
import re
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.handoffs.talks import PICTURE, at_once, data_of, everything
from tests.laws.conversations import json_values, texts

from baton import SetupError
from baton.handoffs.filters import redact
from baton.messages import (
    AssistantMessage,
    Audio,
    Data,
    File,
    Image,
    Message,
    Reasoning,
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)

SECRETS = ["4111 1111 1111 1111", "078-05-1120", "ada@example.org", "+1 415 555 0132"]


def redacted(*messages: Message, **options: Any) -> tuple[Message, ...]:
    """What is left of these messages."""
    return at_once(redact(**options), data_of(before=messages)).pre_handoff_items


def text_left(text: str, **options: Any) -> str:
    """What is left of a text."""
    (message,) = redacted(UserMessage(text), **options)
    assert isinstance(message.content, str)
    return message.content


# --- what is found


@pytest.mark.parametrize(
    "card",
    [
        "4111111111111111",
        "4111 1111 1111 1111",
        "4111-1111-1111-1111",
        "4111\u00a01111\u00a01111\u00a01111",
        "4111\u20111111\u20111111\u20111111",
        "４１１１１１１１１１１１１１１１",
        "5555555555554444",
        "2223003122003222",
        "378282246310005",
        "3782 822463 10005",
        "30569309025904",
        "6011 0009 9013 9424",
        "3530 1113 3330 0000",
        "4222222222222",
        "6304000000000000000",
        # Other groups than are printed on it, as long as there is nothing else.
        "411 111 111 111 1111",
        "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
    ],
)
def test_cards(card: str) -> None:
    # H11
    assert text_left(card) == "[card removed]"
    assert text_left(f"it is {card}, thanks") == "it is [card removed], thanks"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("4111 1111 1111 1111 12/26 123", "[card removed] 12/26 123"),
        ("4111 1111 1111 1111 12 26 123", "[card removed] 12 26 123"),
        ("4111111111111111 123", "[card removed] 123"),
        ("7 4111 1111 1111 1111", "7 [card removed]"),
        ("1,4111111111111111,12/26", "1,[card removed],12/26"),
        ("4111111111111111 5555555555554444", "[card removed] [card removed]"),
    ],
)
def test_a_card_is_found_beside_other_numbers(text: str, left: str) -> None:
    # H11
    assert text_left(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1112",  # fails the Luhn check
        "1700000000000 and 1700000000000000",  # times, and no network begins with 1
        "0000000000000000",
        "411111111111",
        "41111111111111111111",
        "0.4111111111111111",
        "2019 2020 2021 2022 2023",
        "10 20 30 40 50 60 70 80 90 100",
        "2 3 5 7 11 13 17 19 23 29 31 37",
    ],
)
def test_no_cards(text: str) -> None:
    # H11
    assert text_left(text) == text


@pytest.mark.parametrize("ssn", ["078-05-1120", "078 05 1120", "078\u201105\u20111120", "912-71-1234"])
def test_social_security_numbers(ssn: str) -> None:
    # H11
    assert text_left(f"SSN:{ssn}.") == "SSN:[ssn removed]."


@pytest.mark.parametrize(
    "text", ["078051120", "078-05 1120", "000-05-1120", "666-05-1120", "078-00-1120", "078-05-0000", "2023-11-2024"]
)
def test_no_social_security_numbers(text: str) -> None:
    # H11
    assert text_left(text) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("write to ada@example.org.", "write to [email removed]."),
        ("Ada.L+x_1%y-z@mail.example.co.uk", "[email removed]"),
        ("o'brien@example.ie", "[email removed]"),
        ("{'to': 'ada@example.org'}", "{'to': '[email removed]'}"),
        ("<ada@example.org>;bob@example.org", "<[email removed]>;[email removed]"),
        ("josé@example.fr анна@пример.рф", "[email removed] [email removed]"),
        ("请联系ada@example.org，谢谢", "请联系[email removed]，谢谢"),
        ("ada@xn--e1afmkfd.xn--p1ai", "[email removed]"),
        ("https://ada:pw@host.com/x", "https://ada:[email removed]/x"),
    ],
)
def test_addresses(text: str, left: str) -> None:
    # H11
    assert text_left(text) == left


@pytest.mark.parametrize("text", ["ada@localhost", "@ada", "a @ b.com", "x@1.2", "ada@example."])
def test_no_addresses(text: str) -> None:
    # H11
    assert text_left(text) == text


@pytest.mark.parametrize(
    "phone",
    [
        "+14155550132",
        "+1 (415) 555-0132",
        "+49 30 901820",
        "+44 (0)20 7946 0958",
        "+86 138 0013 8000",
        "(415) 555-0132",
        "(415)555-0132",
        "415-555-0132",
        "415.555.0132",
        "415 555 0132",
        "1-800-555-0132",
        "001-415-555-0132",
    ],
)
def test_phones(phone: str) -> None:
    # H11
    assert text_left(f"tel:{phone}!") == "tel:[phone removed]!"


@pytest.mark.parametrize(
    "text",
    [
        "4155550132",
        "555-0132",
        "2024-01-15T10:00:00+01:00",
        "2024-01-15 10:00:00 +0100",
        "+1000000 users",
        "5+12345678",
        "192.168.100.200",
        "order 415-555-01321",
        "part x415-555-0132",
        "1.415.5550",
    ],
)
def test_no_phones(text: str) -> None:
    # H11: what is more often something else stays.
    assert text_left(text) == text


def test_a_long_text_is_read_in_about_one_go() -> None:
    # Whoever writes the messages must not be able to stop the run: what looks twice runs into the test's time limit.
    for piece in ("a", "a@", "x@a-", "a.b", "1 ", "4111-", "+1", "(415) ", "123-45-", "a'"):
        text = piece * (200_000 // len(piece))
        assert len(text_left(text)) <= len(text)


# --- what is put in its place


def test_the_replacement_names_what_was_there() -> None:
    # H11
    assert text_left(f"{SECRETS[0]} {SECRETS[2]}", replacement="<{name}>") == "<card> <email>"
    assert text_left(f"{SECRETS[0]} {SECRETS[2]}", replacement="*") == "* *"
    assert text_left(SECRETS[2], replacement="{} {name!r} \\1") == "{} {name!r} \\1"


def test_finds_that_overlap_are_one_and_nothing_of_them_is_left() -> None:
    own = {"low": "abc", "high": re.compile("BCD", re.IGNORECASE), "all": "zz+"}
    assert text_left("xabcdx zzz abc", patterns=own) == "x[low removed]x [all removed] [low removed]"


def test_a_pattern_that_finds_nothing_in_particular_is_harmless() -> None:
    assert text_left("abc", patterns={"gap": "x*", "edge": r"\b"}) == "abc"


def test_patterns_may_be_chosen_replaced_and_added() -> None:
    # H11
    text = "ada@example.org, 078-05-1120, order A-1234"
    order = {"order": r"\bA-\d{4}\b"}
    assert text_left(text, patterns=["email"]) == "[email removed], 078-05-1120, order A-1234"
    assert text_left(text, patterns="ssn") == "ada@example.org, [ssn removed], order A-1234"
    assert text_left(text, patterns=order) == "ada@example.org, 078-05-1120, order [order removed]"
    assert text_left(text, also=order) == "[email removed], [ssn removed], order [order removed]"
    assert text_left(text, patterns=["ssn"], also=order) == "ada@example.org, [ssn removed], order [order removed]"
    assert text_left(text, also={"email": "ada"}) == "[email removed]@example.org, [ssn removed], order A-1234"
    assert text_left(text, patterns=[]) == text


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"patterns": ["card", "iban"]}, "redact has no pattern `iban`; it has `card`, `ssn`, `email`, `phone`"),
        ({"patterns": r"\d+"}, r"redact has no pattern `\\d\+`"),
        ({"patterns": {"mine": "("}}, "the pattern `mine` given to redact is not a regular expression: missing"),
        ({"also": {"mine": 3}}, "the pattern `mine` given to redact is not a regular expression"),
        ({"also": {"mine": re.compile(b"x")}}, "the pattern `mine` given to redact is not a regular expression"),
    ],
)
def test_what_is_no_pattern_is_refused_at_once(options: Any, told: str) -> None:
    with pytest.raises(SetupError, match=told):
        redact(**options)


# --- where it looks


def test_every_section_and_every_kind_of_message_is_searched() -> None:
    # H11
    secret = " or ".join(SECRETS)
    clean = "[card removed] or [ssn removed] or [email removed] or [phone removed]"
    data = data_of(
        given=[SystemMessage(secret), UserMessage(secret)],
        before=[AssistantMessage(secret, (ToolCall("c", "look"),), author="A")],
        turn=[ToolMessage("c", "look", secret, is_error=True, author="A")],
    )
    assert everything(at_once(redact(), data)) == (
        SystemMessage(clean),
        UserMessage(clean),
        AssistantMessage(clean, (ToolCall("c", "look"),), author="A"),
        ToolMessage("c", "look", clean, is_error=True, author="A"),
    )


def test_every_part_with_text_in_it_is_searched() -> None:
    # H11
    parts = (
        Text("ada@example.org"),
        Data({"to": ["ada@example.org", {"ada@example.org": 1}], "n": 4111111111111111, "x": [1.5, None, True, 7]}),
        Audio(url="https://x.org/ada@example.org", transcript="I am ada@example.org"),
        File(data=b"ada@example.org", name="ada@example.org.pdf"),
        Audio(url="u"),
        File(url="u"),
        PICTURE,
        Image(data=b"ada@example.org"),
    )
    gone = "[email removed]"
    assert redacted(ToolMessage("c", "t", parts)) == (
        ToolMessage(
            "c",
            "t",
            (
                Text(gone),
                Data({"to": [gone, {gone: 1}], "n": "[card removed]", "x": [1.5, None, True, 7]}),
                Audio(url="https://x.org/ada@example.org", transcript=f"I am {gone}"),
                File(data=b"ada@example.org", name=gone),
                *parts[4:],
            ),
        ),
    )


def test_two_keys_do_not_become_one() -> None:
    (message,) = redacted(UserMessage((Data({"a@x.org": 1, "b@x.org": 2, "c@x.org": 3}),)))
    assert message.content == (Data({"[email removed]": 1, "[email removed] 2": 2, "[email removed] 3": 3}),)


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        ('{"to": "ada@example.org", "n": 1}', '{"to": "[email removed]", "n": 1}'),
        # Written with escapes, it is the same address.
        (r'{"to": "ada\u0040example.org"}', '{"to": "[email removed]"}'),
        ('{"card": 4111111111111111}', '{"card": "[card removed]"}'),
        ('{"ada@example.org": [["078-05-1120"]]}', '{"[email removed]": [["[ssn removed]"]]}'),
        # Of two equal keys a reader sees one, but both would be sent.
        ('{"a": "ada@example.org", "a": "x"}', '{"a": "x"}'),
        ('{"name": "Žofie", "to": "ada@example.org"}', '{"name": "Žofie", "to": "[email removed]"}'),
        # What has nothing to hide stays as it was written.
        (r'{ "n":1.50,  "s": "\u00e9" }', r'{ "n":1.50,  "s": "\u00e9" }'),
        ("", ""),
        ("null", "null"),
        # What is no JSON is text.
        ('{"to": "ada@example.org', '{"to": "[email removed]'),
        ("[" * 5000 + '"ada@example.org"', "[" * 5000 + '"[email removed]"'),
    ],
)
def test_arguments_stay_json(arguments: str, left: str) -> None:
    # H11
    asks = AssistantMessage(tool_calls=(ToolCall("c", "mail", arguments),), author="A")
    assert redacted(asks) == (AssistantMessage(tool_calls=(ToolCall("c", "mail", left),), author="A"),)


def test_reasoning_is_left_out() -> None:
    # H11: nobody can search what is opaque.
    thought = (Reasoning("ada@example.org", "p", {"signed": "x"}),)
    assert redacted(AssistantMessage("Well.", reasoning=thought), AssistantMessage(reasoning=thought)) == (
        AssistantMessage("Well."),
    )


def test_what_has_nothing_to_hide_is_the_very_same_message() -> None:
    # Flow need not rewrite it again.
    messages = (
        UserMessage("hi"),
        AssistantMessage((Text("x"), PICTURE), (ToolCall("c", "t", "{}"),), author="A"),
        ToolMessage("c", "t", (Data({"a": [1, "b"]}),), author="A"),
    )
    assert all(after is before for after, before in zip(redacted(*messages), messages, strict=True))


# --- laws


@given(value=st.dictionaries(texts, json_values), secret=st.sampled_from(SECRETS))
def test_any_arguments_stay_json_of_the_same_shape(value: dict[str, Any], secret: str) -> None:
    given_value = {"secret": f"x {secret}", "value": value}
    (message,) = redacted(AssistantMessage(tool_calls=(ToolCall("c", "t", json.dumps(given_value)),)))
    assert isinstance(message, AssistantMessage)
    left = json.loads(message.tool_calls[0].arguments)
    assert left["secret"].endswith(" removed]")
    assert _shape(left["value"]) == _shape(value)


def _shape(value: Any) -> Any:
    if not isinstance(value, dict | list):
        return None
    return [_shape(item) for item in cast("list[Any]", [*value.values()] if isinstance(value, dict) else value)]


@given(before=st.text(max_size=30), after=st.text(max_size=30), secret=st.sampled_from(SECRETS))
def test_a_secret_is_found_in_any_text(before: str, after: str, secret: str) -> None:
    assert secret not in text_left(f"{before} {secret} {after}")


@given(text=st.text(alphabet="0123456789 -.@+()ab", max_size=60))
def test_what_is_left_is_left_alone(text: str) -> None:
    once = text_left(text)
    assert text_left(once) == once
