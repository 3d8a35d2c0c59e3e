"""Redaction: the patterns it finds, the texts it leaves unchanged, and the parts of messages it searches."""

import json
import re
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.handoffs.input_data import IMAGE, all_messages, apply_sync, make_data
from tests.laws.conversations import json_values, texts

from batonkit import SetupError
from batonkit.handoffs.filters import redact
from batonkit.messages import (
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


def redact_messages(*messages: Message, **options: Any) -> tuple[Message, ...]:
    """Redact messages."""
    return apply_sync(redact(**options), make_data(before=messages)).pre_handoff_items


def redact_text(text: str, **options: Any) -> str:
    """Redact a text."""
    (message,) = redact_messages(UserMessage(text), **options)
    assert isinstance(message.content, str)
    return message.content


# --- patterns


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
        # Other groups of digits than are printed on cards, if there are no other digits.
        "411 111 111 111 1111",
        "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
    ],
)
def test_card_numbers_are_removed(card: str) -> None:
    assert redact_text(card) == "[card removed]"
    assert redact_text(f"it is {card}, thanks") == "it is [card removed], thanks"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4111 1111 1111 1111 12/26 123", "[card removed] 12/26 123"),
        ("4111 1111 1111 1111 12 26 123", "[card removed] 12 26 123"),
        ("4111111111111111 123", "[card removed] 123"),
        ("7 4111 1111 1111 1111", "7 [card removed]"),
        ("1,4111111111111111,12/26", "1,[card removed],12/26"),
        ("4111111111111111 5555555555554444", "[card removed] [card removed]"),
    ],
)
def test_a_card_number_is_found_next_to_other_numbers(text: str, expected: str) -> None:
    assert redact_text(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1112",  # fails the Luhn check
        "1700000000000 and 1700000000000000",  # timestamps; no card network begins with 1
        "0000000000000000",
        "411111111111",
        "41111111111111111111",
        "0.4111111111111111",
        "2019 2020 2021 2022 2023",
        "10 20 30 40 50 60 70 80 90 100",
        "2 3 5 7 11 13 17 19 23 29 31 37",
    ],
)
def test_other_numbers_are_not_card_numbers(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize("ssn", ["078-05-1120", "078 05 1120", "078\u201105\u20111120", "912-71-1234"])
def test_social_security_numbers_are_removed(ssn: str) -> None:
    assert redact_text(f"SSN:{ssn}.") == "SSN:[ssn removed]."


@pytest.mark.parametrize(
    "text", ["078051120", "078-05 1120", "000-05-1120", "666-05-1120", "078-00-1120", "078-05-0000", "2023-11-2024"]
)
def test_other_numbers_are_not_social_security_numbers(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_email_addresses_are_removed(text: str, expected: str) -> None:
    assert redact_text(text) == expected


@pytest.mark.parametrize("text", ["ada@localhost", "@ada", "a @ b.com", "x@1.2", "ada@example."])
def test_other_texts_are_not_email_addresses(text: str) -> None:
    assert redact_text(text) == text


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
def test_phone_numbers_are_removed(phone: str) -> None:
    assert redact_text(f"tel:{phone}!") == "tel:[phone removed]!"


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
def test_other_numbers_are_not_phone_numbers(text: str) -> None:
    # Digits that are more often something else are kept.
    assert redact_text(text) == text


def test_long_texts_are_searched_in_linear_time() -> None:
    # Messages must not be able to block the run: a quadratic pattern would exceed the time limit of the test.
    for piece in ("a", "a@", "x@a-", "a.b", "1 ", "4111-", "+1", "(415) ", "123-45-", "a'"):
        text = piece * (200_000 // len(piece))
        assert len(redact_text(text)) <= len(text)


# --- replacements


def test_the_replacement_contains_the_name_of_the_pattern() -> None:
    assert redact_text(f"{SECRETS[0]} {SECRETS[2]}", replacement="<{name}>") == "<card> <email>"
    assert redact_text(f"{SECRETS[0]} {SECRETS[2]}", replacement="*") == "* *"
    assert redact_text(SECRETS[2], replacement="{} {name!r} \\1") == "{} {name!r} \\1"


def test_overlapping_matches_are_replaced_once() -> None:
    patterns = {"low": "abc", "high": re.compile("BCD", re.IGNORECASE), "all": "zz+"}
    assert redact_text("xabcdx zzz abc", patterns=patterns) == "x[low removed]x [all removed] [low removed]"


def test_empty_matches_are_ignored() -> None:
    assert redact_text("abc", patterns={"gap": "x*", "edge": r"\b"}) == "abc"


def test_patterns_can_be_selected_replaced_and_added() -> None:
    text = "ada@example.org, 078-05-1120, order A-1234"
    order = {"order": r"\bA-\d{4}\b"}
    assert redact_text(text, patterns=["email"]) == "[email removed], 078-05-1120, order A-1234"
    assert redact_text(text, patterns="ssn") == "ada@example.org, [ssn removed], order A-1234"
    assert redact_text(text, patterns=order) == "ada@example.org, 078-05-1120, order [order removed]"
    assert redact_text(text, also=order) == "[email removed], [ssn removed], order [order removed]"
    assert redact_text(text, patterns=["ssn"], also=order) == "ada@example.org, [ssn removed], order [order removed]"
    assert redact_text(text, also={"email": "ada"}) == "[email removed]@example.org, [ssn removed], order A-1234"
    assert redact_text(text, patterns=[]) == text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patterns": ["card", "iban"]}, "redact has no pattern `iban`; it has `card`, `ssn`, `email`, `phone`"),
        ({"patterns": r"\d+"}, r"redact has no pattern `\\d\+`"),
        ({"patterns": {"mine": "("}}, "the pattern `mine` given to redact is not a regular expression: missing"),
        ({"also": {"mine": 3}}, "the pattern `mine` given to redact is not a regular expression"),
        ({"also": {"mine": re.compile(b"x")}}, "the pattern `mine` given to redact is not a regular expression"),
    ],
)
def test_an_invalid_pattern_is_refused(options: Any, message: str) -> None:
    with pytest.raises(SetupError, match=message):
        redact(**options)


# --- searched parts


def test_every_section_and_every_kind_of_message_is_searched() -> None:
    secret = " or ".join(SECRETS)
    redacted = "[card removed] or [ssn removed] or [email removed] or [phone removed]"
    data = make_data(
        history=[SystemMessage(secret), UserMessage(secret)],
        before=[AssistantMessage(secret, (ToolCall("c", "look"),), author="A")],
        turn=[ToolMessage("c", "look", secret, is_error=True, author="A")],
    )
    assert all_messages(apply_sync(redact(), data)) == (
        SystemMessage(redacted),
        UserMessage(redacted),
        AssistantMessage(redacted, (ToolCall("c", "look"),), author="A"),
        ToolMessage("c", "look", redacted, is_error=True, author="A"),
    )


def test_every_part_with_text_in_it_is_searched() -> None:
    parts = (
        Text("ada@example.org"),
        Data({"to": ["ada@example.org", {"ada@example.org": 1}], "n": 4111111111111111, "x": [1.5, None, True, 7]}),
        Audio(url="https://x.org/ada@example.org", transcript="I am ada@example.org"),
        File(data=b"ada@example.org", name="ada@example.org.pdf"),
        Audio(url="u"),
        File(url="u"),
        IMAGE,
        Image(data=b"ada@example.org"),
    )
    removed = "[email removed]"
    assert redact_messages(ToolMessage("c", "t", parts)) == (
        ToolMessage(
            "c",
            "t",
            (
                Text(removed),
                Data({"to": [removed, {removed: 1}], "n": "[card removed]", "x": [1.5, None, True, 7]}),
                Audio(url="https://x.org/ada@example.org", transcript=f"I am {removed}"),
                File(data=b"ada@example.org", name=removed),
                *parts[4:],
            ),
        ),
    )


def test_redacted_keys_stay_different() -> None:
    (message,) = redact_messages(UserMessage((Data({"a@x.org": 1, "b@x.org": 2, "c@x.org": 3}),)))
    assert message.content == (Data({"[email removed]": 1, "[email removed] 2": 2, "[email removed] 3": 3}),)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"to": "ada@example.org", "n": 1}', '{"to": "[email removed]", "n": 1}'),
        # The same address, written with escapes.
        (r'{"to": "ada\u0040example.org"}', '{"to": "[email removed]"}'),
        ('{"card": 4111111111111111}', '{"card": "[card removed]"}'),
        ('{"ada@example.org": [["078-05-1120"]]}', '{"[email removed]": [["[ssn removed]"]]}'),
        # A parser returns one of two equal keys, but both would be sent.
        ('{"a": "ada@example.org", "a": "x"}', '{"a": "x"}'),
        ('{"name": "Žofie", "to": "ada@example.org"}', '{"name": "Žofie", "to": "[email removed]"}'),
        # Arguments without a match are not rewritten.
        (r'{ "n":1.50,  "s": "\u00e9" }', r'{ "n":1.50,  "s": "\u00e9" }'),
        ("", ""),
        ("null", "null"),
        # Invalid JSON is treated as text.
        ('{"to": "ada@example.org', '{"to": "[email removed]'),
        ("[" * 5000 + '"ada@example.org"', "[" * 5000 + '"[email removed]"'),
    ],
)
def test_redacted_arguments_are_valid_json(arguments: str, expected: str) -> None:
    message = AssistantMessage(tool_calls=(ToolCall("c", "mail", arguments),), author="A")
    assert redact_messages(message) == (AssistantMessage(tool_calls=(ToolCall("c", "mail", expected),), author="A"),)


def test_reasoning_is_removed() -> None:
    # Opaque data cannot be searched.
    reasoning = (Reasoning("ada@example.org", "p", {"signed": "x"}),)
    assert redact_messages(AssistantMessage("Well.", reasoning=reasoning), AssistantMessage(reasoning=reasoning)) == (
        AssistantMessage("Well."),
    )


def test_messages_without_a_match_are_returned_unchanged() -> None:
    # `flow` need not rewrite it again.
    messages = (
        UserMessage("hi"),
        AssistantMessage((Text("x"), IMAGE), (ToolCall("c", "t", "{}"),), author="A"),
        ToolMessage("c", "t", (Data({"a": [1, "b"]}),), author="A"),
    )
    assert all(after is before for after, before in zip(redact_messages(*messages), messages, strict=True))


# --- properties


@given(value=st.dictionaries(texts, json_values), secret=st.sampled_from(SECRETS))
def test_redacted_arguments_have_the_same_shape(value: dict[str, Any], secret: str) -> None:
    arguments_value = {"secret": f"x {secret}", "value": value}
    (message,) = redact_messages(AssistantMessage(tool_calls=(ToolCall("c", "t", json.dumps(arguments_value)),)))
    assert isinstance(message, AssistantMessage)
    arguments = json.loads(message.tool_calls[0].arguments)
    assert arguments["secret"].endswith(" removed]")
    assert _shape(arguments["value"]) == _shape(value)


def _shape(value: Any) -> Any:
    if not isinstance(value, dict | list):
        return None
    return [_shape(item) for item in cast("list[Any]", [*value.values()] if isinstance(value, dict) else value)]


@given(before=st.text(max_size=30), after=st.text(max_size=30), secret=st.sampled_from(SECRETS))
def test_a_secret_is_found_in_any_text(before: str, after: str, secret: str) -> None:
    assert secret not in redact_text(f"{before} {secret} {after}")


@given(text=st.text(alphabet="0123456789 -.@+()ab", max_size=60))
def test_redacting_a_text_twice_changes_nothing(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once
