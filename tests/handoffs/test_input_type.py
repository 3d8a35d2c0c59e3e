"""Parsing of typed handoff input: strict, with problems that name the place but never the value."""

import json
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NamedTuple, NotRequired
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationInfo, field_validator
from typing_extensions import TypeAliasType, TypedDict

from batonkit import SetupError
from batonkit.handoffs.input_type import HandoffInputParser


class Ticket(BaseModel):
    subject: str
    urgency: int = 1
    is_open: bool = True
    weight: float = 0.0
    note: str | None = None


@dataclass
class TicketDataclass:
    subject: str
    tags: list[str] = field(default_factory=list[str])


class TicketDict(TypedDict):
    subject: str
    tags: NotRequired[list[str]]


class Mood(Enum):
    CALM = "calm"
    ANGRY = "angry"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Point(NamedTuple):
    x: int
    y: int


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
Tree = TypeAliasType("Tree", "list[Tree] | int")


class Renamed(BaseModel):
    model_config = ConfigDict(populate_by_name=False)

    subject: str = Field(alias="Subject line")


def parse(kind: Any, arguments: str) -> Any:
    """Parse the arguments of a call."""
    return HandoffInputParser("B", kind).parse(arguments)


def find_problems(kind: Any, arguments: str) -> list[str]:
    """Return the problems in the arguments of a call."""
    with pytest.raises(ValueError, match=r"\S") as caught:
        parse(kind, arguments)
    return str(caught.value).split("; ")


# --- valid input


@pytest.mark.parametrize(
    ("kind", "arguments", "value"),
    [
        (Ticket, '{"subject": "rent"}', Ticket(subject="rent")),
        (Ticket, '{"subject": "rent", "weight": 3, "note": null}', Ticket(subject="rent", weight=3.0)),
        (Ticket, ' {"subject": "Žofie \\u00e9 \\ud83d\\ude00"} ', Ticket(subject="Žofie é 😀")),
        (TicketDataclass, '{"subject": "rent", "tags": ["a"]}', TicketDataclass("rent", ["a"])),
        (TicketDict, '{"subject": "rent"}', {"subject": "rent"}),
        (Renamed, '{"Subject line": "rent"}', Renamed.model_validate({"Subject line": "rent"})),
        (Cat, '{"kind": "cat", "lives": 9}', Cat(kind="cat", lives=9)),
    ],
)
def test_objects_are_parsed(kind: Any, arguments: str, value: Any) -> None:
    assert parse(kind, arguments) == value


@pytest.mark.parametrize(
    ("kind", "json_value", "value"),
    [
        (int, 3, 3),
        (int, 10**30, 10**30),
        (float, 3, 3.0),
        (str, "", ""),
        (bool, False, False),
        (None | int, None, None),
        (list[int], [], []),
        (list[Ticket], [{"subject": "rent"}], [Ticket(subject="rent")]),
        (tuple[int, str], [1, "a"], (1, "a")),
        (Point, [1, 2], Point(1, 2)),
        (set[int], [1, 2, 1], {1, 2}),
        (date, "2031-05-01", date(2031, 5, 1)),
        (datetime, "2031-05-01T10:00:00", datetime(2031, 5, 1, 10)),
        (timedelta, "PT90S", timedelta(seconds=90)),
        (Decimal, "1.10", Decimal("1.10")),
        (Decimal, 1.5, Decimal("1.5")),
        (UUID, "12345678-1234-5678-1234-567812345678", UUID("12345678123456781234567812345678")),
        (Mood, "angry", Mood.ANGRY),
        (Level, 2, Level.HIGH),
        (Literal["a", 1], 1, 1),
        (Pet, {"kind": "dog", "name": "Rex"}, Dog(kind="dog", name="Rex")),
        (Cat | Dog, {"kind": "cat", "lives": 9}, Cat(kind="cat", lives=9)),
        (RootModel[list[int]], [1], RootModel[list[int]]([1])),
        (Tree, [[1], 2], [[1], 2]),
    ],
)
def test_other_types_are_wrapped_in_an_object(kind: Any, json_value: Any, value: Any) -> None:
    # JSON has no dates, enums, tuples or sets, so these are converted.
    parser = HandoffInputParser("B", kind)
    assert parser.schema["required"] == ["input"]
    parsed = parser.parse(json.dumps({"input": json_value}))
    assert parsed == value
    assert type(parsed) is type(value)


# --- invalid input


@pytest.mark.parametrize(
    ("kind", "json_value"),
    [
        (int, "3"),
        (int, 3.0),
        (int, True),
        (int, None),
        (float, "3.0"),
        (float, True),
        (bool, 1),
        (bool, "true"),
        (bool, None),
        (str, 3),
        (str, None),
        (str, ["a"]),
        (list[int], {"0": 1}),
        (list[int], ["1"]),
        (list[int], 1),
        (tuple[int, str], ["a", 1]),
        (tuple[int, str], [1]),
        (date, 20310501),
        (date, "1 May 2031"),
        (date, "2031-13-01"),
        (Mood, "ANGRY"),
        (Level, "1"),
        (Level, 3),
        (Decimal, True),
        (Literal["a", 1], "1"),
        (str | None, 3),
        (Pet, {"kind": "cow"}),
        (Pet, {"kind": "cat", "lives": "9"}),
    ],
)
def test_values_are_not_coerced(kind: Any, json_value: Any) -> None:
    assert find_problems(kind, json.dumps({"input": json_value}))
    with pytest.raises(ValueError, match=r"^inner\S*: "):
        parse(TypedDict("Holder", {"inner": kind}), json.dumps({"inner": json_value}))  # pyright: ignore


@pytest.mark.parametrize(
    "arguments", ["", " ", "{", "nul", "{'subject': 'rent'}", '{"subject": "rent"} or so', "\ud800", "[" * 100_000]
)
def test_invalid_json_is_reported(arguments: str) -> None:
    (problem,) = find_problems(Ticket, arguments)
    assert problem.startswith("the input: ")
    assert find_problems(int, arguments) == ['arguments must be {"input": …}']


@pytest.mark.parametrize("arguments", ["null", "[]", '"rent"', "3", "true"])
def test_json_that_is_not_an_object_is_reported(arguments: str) -> None:
    assert find_problems(Ticket, arguments) == ["the input: Input should be an object"]
    assert find_problems(TicketDataclass, arguments) == ["the input: Input should be an object"]
    assert find_problems(str, arguments) == ['arguments must be {"input": …}']


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_nan_and_infinity_are_not_json(word: str) -> None:
    (problem,) = find_problems(Ticket, f'{{"subject": "x", "weight": {word}}}')
    assert problem.startswith("the input: JSON is malformed")
    assert find_problems(float, f'{{"input": {word}}}')
    assert parse(Ticket, f'{{"subject": "{word}"}}').subject == word


@pytest.mark.parametrize("arguments", ['{"input": ' + "[" * 100_000, '{"inputs": 3}', "{}", '{"input": }'])
def test_a_missing_or_broken_wrapper_is_reported(arguments: str) -> None:
    assert find_problems(list[int], arguments) == ['arguments must be {"input": …}']


def test_every_problem_names_its_place() -> None:
    arguments = {"urgency": "1", "is_open": 1, "weight": "heavy", "note": 3}
    assert find_problems(Ticket, json.dumps(arguments)) == [
        "subject: Field required",
        "urgency: Input should be a valid integer",
        "is_open: Input should be a valid boolean",
        "weight: Input should be a valid number",
        "note: Input should be a valid string",
    ]
    deep = {"input": [{"subject": "a"}, {"subject": 1}, 5]}
    assert find_problems(list[Ticket], json.dumps(deep)) == [
        "1.subject: Input should be a valid string",
        "2: Input should be an object",
    ]


def test_only_the_first_problems_are_listed() -> None:
    # A long list would cost tokens.
    problems = find_problems(list[int], json.dumps({"input": ["x"] * 500}))
    assert len(problems) == 21
    assert problems[-1] == "and 480 more"


SECRET = "4111-1111"


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")

    number: int
    day: date
    mood: Mood
    kind: Literal["a", "b"]
    code: Annotated[str, Field(max_length=3, pattern="^x")]
    id: UUID
    pets: list[Pet]
    either: int | list[str]


def test_problems_do_not_contain_values() -> None:
    arguments: dict[str, Any] = dict.fromkeys(Strict.model_fields, SECRET)
    arguments["pets"] = [{"kind": SECRET}, {"kind": 41111111}, {"kind": "cat", "lives": SECRET}, SECRET, {}]
    problems = find_problems(Strict, json.dumps(arguments))
    assert "1111" not in str(problems)
    assert "pets.0: 'kind' should be one of 'cat', 'dog'" in problems
    places = [line.partition(":")[0] for line in problems]
    assert places[:6] == ["number", "day", "mood", "kind", "code", "id"]
    assert places[6:] == ["pets.0", "pets.1", "pets.2.cat.lives", "pets.3", "pets.4", "either.int", "either.list[str]"]


def test_messages_of_custom_validators_are_kept() -> None:
    # The author of the validator decides what the model reads.
    class Even(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def is_even(cls, number: int, info: ValidationInfo) -> int:
            if number % 2:
                raise ValueError("should be even")
            return number

    assert find_problems(Even, '{"number": 3}') == ["number: Value error, should be even"]
    assert parse(Even, '{"number": 4}') == Even(number=4)


# --- input types


class NoSchema:
    """A class without a JSON schema."""


@pytest.mark.parametrize("kind", [NoSchema, list[NoSchema], "Nobody", type, 42])
def test_a_type_without_a_schema_is_refused(kind: Any) -> None:
    with pytest.raises(SetupError, match=r"the input_type of the handoff to `B` is .*, which has no JSON schema"):
        HandoffInputParser("B", kind)


@pytest.mark.parametrize("kind", [RootModel[dict[str, int]], dict[str, str], list[Any]])
def test_a_type_without_a_strict_schema_is_refused(kind: Any) -> None:
    with pytest.raises(SetupError, match="which strict schemas cannot express"):
        HandoffInputParser("B", kind)


# --- encoding


_tickets = st.builds(
    Ticket,
    subject=st.text(),
    urgency=st.integers(-(2**63), 2**63),
    is_open=st.booleans(),
    weight=st.floats(allow_nan=False, allow_infinity=False),
    note=st.none() | st.text(),
)


@given(ticket=_tickets)
def test_an_encoded_object_is_parsed_to_the_same_object(ticket: Ticket) -> None:
    parser = HandoffInputParser("B", Ticket)
    assert parser.parse(json.dumps(parser.dump(ticket))) == ticket


@given(
    pets=st.lists(st.builds(Cat, kind=st.just("cat"), lives=st.integers(0, 9)) | st.builds(Dog, kind=st.just("dog")))
)
def test_an_encoded_value_is_parsed_to_the_same_value(pets: list[Cat | Dog]) -> None:
    parser = HandoffInputParser("B", list[Pet])
    assert parser.parse(json.dumps({"input": parser.dump(pets)})) == pets


def test_aliases_are_used_in_encoded_values() -> None:
    # The record uses the names that the model was given.
    parser = HandoffInputParser("B", Renamed)
    assert list(parser.schema["properties"]) == ["Subject line"]
    assert parser.dump(parser.parse('{"Subject line": "rent"}')) == {"Subject line": "rent"}
    assert HandoffInputParser("B", list[Mood]).dump([Mood.CALM]) == ["calm"]


PARSERS = [HandoffInputParser("B", kind) for kind in (Ticket, list[int], Tree)]


@given(arguments=st.text() | st.from_regex(r"[\[\]{}\",:a-c0-9. -]*"))
def test_any_arguments_are_parsed_or_raise_a_value_error(arguments: str) -> None:
    # A ValueError is reported to the model; any other exception would fail the run.
    for parser in PARSERS:
        with suppress(ValueError):
            parser.parse(arguments)
