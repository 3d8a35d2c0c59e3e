"""Function schemas, merging of chunks, debug output."""

# Swarm's programs have functions without annotations.
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false

from collections import defaultdict
from enum import Enum
from functools import partial, wraps
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from batonkit.errors import SetupError
from batonkit.swarm.util import debug_print, function_to_json, merge_chunk, merge_fields


def parameters_of(function: Any) -> dict[str, Any]:
    return function_to_json(function)["function"]["parameters"]


def test_a_function_schema_has_swarms_format() -> None:
    def book(flight: str, seats: int, window: bool = True, limit: float = 9.5, note="none"):
        """Book seats on a flight."""

    assert function_to_json(book) == {
        "type": "function",
        "function": {
            "name": "book",
            "description": "Book seats on a flight.",
            "parameters": {
                "type": "object",
                "properties": {
                    "flight": {"type": "string"},
                    "seats": {"type": "integer"},
                    "window": {"type": "boolean"},
                    "limit": {"type": "number"},
                    "note": {"type": "string"},
                },
                "required": ["flight", "seats"],
            },
        },
    }


def test_a_function_without_docstring_and_parameters() -> None:
    def leave():
        return None

    schema = function_to_json(leave)["function"]
    assert schema == {
        "name": "leave",
        "description": "",
        "parameters": {"type": "object", "properties": {}, "required": []},
    }


def test_a_docstring_is_used_unchanged() -> None:
    def refund(item_id):
        """Refund an item.

        Ask for confirmation first.
        """

    assert function_to_json(refund)["function"]["description"] == refund.__doc__


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    street: str
    number: int = 1


def test_the_schema_has_the_full_types() -> None:
    """Swarm turns every type it does not know into a string."""

    def deliver(
        to: Address, colours: list[Colour], tags: dict[str, int], size: Literal["s", "m"], floor: int | None = None
    ):
        pass

    schema = parameters_of(deliver)
    assert schema["required"] == ["to", "colours", "tags", "size"]
    properties = schema["properties"]
    assert properties["size"] == {"enum": ["s", "m"], "type": "string"}
    assert properties["floor"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert properties["tags"] == {"additionalProperties": {"type": "integer"}, "type": "object"}
    assert properties["colours"] == {"items": {"$ref": "#/$defs/Colour"}, "type": "array"}
    assert schema["$defs"]["Colour"] == {"enum": ["red", "blue"], "type": "string"}
    assert schema["$defs"]["Address"]["required"] == ["street"]


class Booking:
    def __init__(self) -> None:
        self.city = ""

    def visit(self, city, context_variables):
        """Visit a city."""

    def __call__(self, city, context_variables=None):
        """Call a city."""


def logged(function: Any) -> Any:
    @wraps(function)
    def around(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return around


def plain(city, context_variables: dict[str, Any]):
    """Look a city up."""


@pytest.mark.parametrize(
    ("function", "name", "description"),
    [
        (plain, "plain", "Look a city up."),
        (logged(plain), "plain", "Look a city up."),
        (partial(logged(plain)), "plain", "Look a city up."),
        (Booking().visit, "visit", "Visit a city."),
        (Booking(), "Booking", "Call a city."),
    ],
)
def test_context_variables_are_hidden_by_signature(function: Any, name: str, description: str) -> None:
    """Also for decorated functions, partials, methods and callable objects."""
    schema = function_to_json(function)["function"]
    assert (schema["name"], schema["description"]) == (name, description)
    assert schema["parameters"]["properties"] == {"city": {"type": "string"}}
    assert schema["parameters"]["required"] == ["city"]


def test_bound_parameters_of_a_partial_are_hidden() -> None:
    def pay(amount: int, account: str, secret: str):
        pass

    assert parameters_of(partial(pay, secret="x"))["properties"].keys() == {"amount", "account"}
    assert parameters_of(partial(pay, 5))["properties"].keys() == {"account", "secret"}


def test_a_type_without_a_schema_becomes_a_string() -> None:
    def hold(client: Booking, seats: int, when: "Unknown.Type"):  # pyright: ignore # noqa: F821
        pass

    assert parameters_of(hold)["properties"] == {
        "client": {"type": "string"},
        "seats": {"type": "integer"},
        "when": {"type": "string"},
    }


def test_variadic_parameters_are_left_out() -> None:
    def bare(*args, **kwargs):
        pass

    def mixed(city, *rest, **more):
        pass

    assert parameters_of(bare)["properties"] == {}
    assert parameters_of(mixed)["properties"].keys() == {"city"}


def test_an_invalid_function_raises_a_setup_error() -> None:
    with pytest.raises(SetupError, match="cannot be named `<lambda>`"):
        function_to_json(lambda: "x")
    with pytest.raises(SetupError, match="`iter` cannot be a tool"):
        function_to_json(iter)


def test_debug_output_starts_with_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    debug_print(False, "quiet")
    debug_print(True, "said", {"a": 1})
    printed = capsys.readouterr().out
    assert "quiet" not in printed
    assert "said {'a': 1}" in printed
    assert printed.startswith("\033[90m[20")


def test_texts_are_merged_at_any_depth() -> None:
    target: dict[str, Any] = {"content": "Hel", "function": {"arguments": '{"a'}, "count": 1}
    merge_fields(target, {"content": "lo", "function": {"arguments": '": 1}'}, "count": 2, "nothing": None})
    assert target == {"content": "Hello", "function": {"arguments": '{"a": 1}'}, "count": 1}


def test_new_texts_are_added() -> None:
    """For example a refusal, on which Swarm's own merging fails."""
    target: dict[str, Any] = {"content": "", "function_call": None}
    merge_fields(target, {"refusal": "No.", "function_call": {"name": "x"}})
    merge_fields(target, {"refusal": " Never.", "function_call": {"name": "y"}})
    assert target == {"content": "", "refusal": "No. Never.", "function_call": {"name": "xy"}}


def call_delta(index: int | None, name: str | None = None, arguments: str | None = None, id: str | None = None) -> Any:
    function = {"name": name, "arguments": arguments}
    return {"index": index, "id": id, "type": "function" if id else None, "function": function}


def new_message() -> dict[str, Any]:
    def blank() -> dict[str, Any]:
        return {"function": {"arguments": "", "name": ""}, "id": "", "type": ""}

    return {"content": "", "role": "assistant", "tool_calls": defaultdict(blank)}


def complete_call(name: str, arguments: str, id: str) -> dict[str, Any]:
    return {"function": {"arguments": arguments, "name": name}, "id": id, "type": "function"}


def test_several_calls_in_one_chunk_are_merged() -> None:
    message = new_message()
    merge_chunk(
        message, {"role": "assistant", "tool_calls": [call_delta(0, "a", "", "1"), call_delta(1, "b", "", "2")]}
    )
    merge_chunk(message, {"content": "x", "tool_calls": [call_delta(1, None, "{}"), call_delta(0, None, '{"k"')]})
    merge_chunk(message, {"tool_calls": [call_delta(0, None, ": 1}")]})
    merge_chunk(message, {"tool_calls": None})
    assert message["content"] == "x"
    assert message["role"] == "assistant"
    assert message["tool_calls"] == {0: complete_call("a", '{"k": 1}', "1"), 1: complete_call("b", "{}", "2")}


def test_merging_does_not_change_the_chunk() -> None:
    delta = {"role": "assistant", "tool_calls": [call_delta(0, "a", "{}", "1")]}
    merge_chunk(new_message(), delta)
    assert delta == {"role": "assistant", "tool_calls": [call_delta(0, "a", "{}", "1")]}


def test_repeated_ids_and_names_are_merged_once() -> None:
    message = new_message()
    for arguments in ('{"k"', ": 1}"):
        merge_chunk(message, {"tool_calls": [call_delta(0, "a", arguments, "1")]})
    assert message["tool_calls"] == {0: complete_call("a", '{"k": 1}', "1")}


def test_calls_without_an_index_are_distinguished_by_id() -> None:
    message: dict[str, Any] = {"content": "", "tool_calls": {}}
    for each in (call_delta(None, "a", "{", "1"), call_delta(None, None, "}"), call_delta(None, "b", "{}", "2")):
        merge_chunk(message, {"tool_calls": [each]})
    assert message["tool_calls"] == {0: complete_call("a", "{}", "1"), 1: complete_call("b", "{}", "2")}
