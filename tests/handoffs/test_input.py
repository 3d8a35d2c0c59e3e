"""Typed input: read strictly as JSON has it, and problems told with their places and without values."""

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

from baton import SetupError
from baton.handoffs.input import HandoffInputParser


class Ticket(BaseModel):
    subject: str
    urgency: int = 1
    is_open: bool = True
    weight: float = 0.0
    note: str | None = None


@dataclass
class Slip:
    subject: str
    tags: list[str] = field(default_factory=list[str])


class Card(TypedDict):
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


def read(kind: Any, arguments: str) -> Any:
    """What a model's arguments come to."""
    return HandoffInputParser("B", kind).parse(arguments)


def problems_of(kind: Any, arguments: str) -> list[str]:
    """What is wrong with a model's arguments."""
    with pytest.raises(ValueError, match=r"\S") as caught:
        read(kind, arguments)
    return str(caught.value).split("; ")


# --- what fits


@pytest.mark.parametrize(
    ("kind", "arguments", "value"),
    [
        (Ticket, '{"subject": "rent"}', Ticket(subject="rent")),
        (Ticket, '{"subject": "rent", "weight": 3, "note": null}', Ticket(subject="rent", weight=3.0)),
        (Ticket, ' {"subject": "Žofie \\u00e9 \\ud83d\\ude00"} ', Ticket(subject="Žofie é 😀")),
        (Slip, '{"subject": "rent", "tags": ["a"]}', Slip("rent", ["a"])),
        (Card, '{"subject": "rent"}', {"subject": "rent"}),
        (Renamed, '{"Subject line": "rent"}', Renamed.model_validate({"Subject line": "rent"})),
        (Cat, '{"kind": "cat", "lives": 9}', Cat(kind="cat", lives=9)),
    ],
)
def test_an_object_is_read_as_it_is(kind: Any, arguments: str, value: Any) -> None:
    # H4
    assert read(kind, arguments) == value


@pytest.mark.parametrize(
    ("kind", "given", "value"),
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
def test_what_is_no_object_is_wrapped_in_one(kind: Any, given: Any, value: Any) -> None:
    # H4: JSON has no dates, enums, tuples or sets of its own, so these come as what stands for them.
    reader = HandoffInputParser("B", kind)
    assert reader.schema["required"] == ["input"]
    found = reader.parse(json.dumps({"input": given}))
    assert found == value
    assert type(found) is type(value)


# --- what does not fit


@pytest.mark.parametrize(
    ("kind", "given"),
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
def test_nothing_is_coerced(kind: Any, given: Any) -> None:
    # H6
    assert problems_of(kind, json.dumps({"input": given}))
    with pytest.raises(ValueError, match=r"^inner\S*: "):
        read(TypedDict("Holder", {"inner": kind}), json.dumps({"inner": given}))  # pyright: ignore


@pytest.mark.parametrize(
    "arguments", ["", " ", "{", "nul", "{'subject': 'rent'}", '{"subject": "rent"} or so', "\ud800", "[" * 100_000]
)
def test_what_is_not_json_is_told_so(arguments: str) -> None:
    # H6
    (problem,) = problems_of(Ticket, arguments)
    assert problem.startswith("the input: ")
    assert problems_of(int, arguments) == ['arguments must be {"input": …}']


@pytest.mark.parametrize("arguments", ["null", "[]", '"rent"', "3", "true"])
def test_what_is_no_object_is_told_so(arguments: str) -> None:
    # H6
    assert problems_of(Ticket, arguments) == ["the input: Input should be an object"]
    assert problems_of(Slip, arguments) == ["the input: Input should be an object"]
    assert problems_of(str, arguments) == ['arguments must be {"input": …}']


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_words_that_are_numbers_elsewhere_are_not_json(word: str) -> None:
    # H6
    (problem,) = problems_of(Ticket, f'{{"subject": "x", "weight": {word}}}')
    assert problem.startswith("the input: JSON is malformed")
    assert problems_of(float, f'{{"input": {word}}}')
    assert read(Ticket, f'{{"subject": "{word}"}}').subject == word


@pytest.mark.parametrize("arguments", ['{"input": ' + "[" * 100_000, '{"inputs": 3}', "{}", '{"input": }'])
def test_a_wrapper_that_is_not_as_shown_is_told_so(arguments: str) -> None:
    # H6
    assert problems_of(list[int], arguments) == ['arguments must be {"input": …}']


def test_every_problem_is_told_with_its_place() -> None:
    # H6
    given = {"urgency": "1", "is_open": 1, "weight": "heavy", "note": 3}
    assert problems_of(Ticket, json.dumps(given)) == [
        "subject: Field required",
        "urgency: Input should be a valid integer",
        "is_open: Input should be a valid boolean",
        "weight: Input should be a valid number",
        "note: Input should be a valid string",
    ]
    deep = {"input": [{"subject": "a"}, {"subject": 1}, 5]}
    assert problems_of(list[Ticket], json.dumps(deep)) == [
        "1.subject: Input should be a valid string",
        "2: Input should be an object",
    ]


def test_too_many_problems_are_counted() -> None:
    # H6: the model pays for every word.
    told = problems_of(list[int], json.dumps({"input": ["x"] * 500}))
    assert len(told) == 21
    assert told[-1] == "and 480 more"


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


def test_values_are_never_shown() -> None:
    # H6
    given: dict[str, Any] = dict.fromkeys(Strict.model_fields, SECRET)
    given["pets"] = [{"kind": SECRET}, {"kind": 41111111}, {"kind": "cat", "lives": SECRET}, SECRET, {}]
    told = problems_of(Strict, json.dumps(given))
    assert "1111" not in str(told)
    assert "pets.0: 'kind' should be one of 'cat', 'dog'" in told
    places = [line.partition(":")[0] for line in told]
    assert places[:6] == ["number", "day", "mood", "kind", "code", "id"]
    assert places[6:] == ["pets.0", "pets.1", "pets.2.cat.lives", "pets.3", "pets.4", "either.int", "either.list[str]"]


def test_what_a_validator_of_your_own_says_is_told_as_it_is() -> None:
    # H6: its author decides what the model may read.
    class Even(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def is_even(cls, number: int, info: ValidationInfo) -> int:
            if number % 2:
                raise ValueError("should be even")
            return number

    assert problems_of(Even, '{"number": 3}') == ["number: Value error, should be even"]
    assert read(Even, '{"number": 4}') == Even(number=4)


# --- what can be a type


class Live:
    """Nothing that JSON can hold."""


@pytest.mark.parametrize("kind", [Live, list[Live], "Nobody", type, 42])
def test_what_has_no_schema_is_refused(kind: Any) -> None:
    # H4
    with pytest.raises(SetupError, match=r"the input_type of the handoff to `B` is .*, which has no JSON schema"):
        HandoffInputParser("B", kind)


@pytest.mark.parametrize("kind", [RootModel[dict[str, int]], dict[str, str], list[Any]])
def test_what_cannot_be_strict_is_refused(kind: Any) -> None:
    # H4
    with pytest.raises(SetupError, match="which strict schemas cannot express"):
        HandoffInputParser("B", kind)


# --- there and back


_tickets = st.builds(
    Ticket,
    subject=st.text(),
    urgency=st.integers(-(2**63), 2**63),
    is_open=st.booleans(),
    weight=st.floats(allow_nan=False, allow_infinity=False),
    note=st.none() | st.text(),
)


@given(ticket=_tickets)
def test_an_object_comes_back_as_it_was(ticket: Ticket) -> None:
    reader = HandoffInputParser("B", Ticket)
    assert reader.parse(json.dumps(reader.dump(ticket))) == ticket


@given(
    pets=st.lists(st.builds(Cat, kind=st.just("cat"), lives=st.integers(0, 9)) | st.builds(Dog, kind=st.just("dog")))
)
def test_a_wrapped_value_comes_back_as_it_was(pets: list[Cat | Dog]) -> None:
    reader = HandoffInputParser("B", list[Pet])
    assert reader.parse(json.dumps({"input": reader.dump(pets)})) == pets


def test_a_value_is_dumped_under_the_names_of_the_schema() -> None:
    # H5: what is recorded reads like what the model was shown.
    reader = HandoffInputParser("B", Renamed)
    assert list(reader.schema["properties"]) == ["Subject line"]
    assert reader.dump(reader.parse('{"Subject line": "rent"}')) == {"Subject line": "rent"}
    assert HandoffInputParser("B", list[Mood]).dump([Mood.CALM]) == ["calm"]


READERS = [HandoffInputParser("B", kind) for kind in (Ticket, list[int], Tree)]


@given(arguments=st.text() | st.from_regex(r"[\[\]{}\",:a-c0-9. -]*"))
def test_whatever_a_model_writes_is_read_or_refused(arguments: str) -> None:
    # H6: nothing but a ValueError tells the model what is wrong; anything else ends the run.
    for reader in READERS:
        with suppress(ValueError):
            reader.parse(arguments)
