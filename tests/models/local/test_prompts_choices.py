"""The choices that the embedded model gets, and their descriptions."""

from tests.models.local.scripted_engine import GET_WEATHER, SECTION, TRANSFER, make_request

from batonkit.messages import ToolSpec
from batonkit.models.local.prompts import Choice, list_choices


def _descriptions(options: tuple[Choice, ...]) -> dict[str, str]:
    return {option.name: option.description for option in options}


def test_enum_values_are_described_by_the_list_in_the_instructions() -> None:
    options = list_choices(make_request(tools=(TRANSFER, GET_WEATHER), instructions=SECTION), reply="Speak.")
    assert _descriptions(options) == {
        "Loans": "Lends books.",
        "Front": "Everything else.",
        "get_weather": "Get the weather.",
        "reply": "Speak.",
    }


def test_equal_values_of_two_tools_are_prefixed_with_the_tool() -> None:
    other = ToolSpec("ask_agent", "", TRANSFER.parameters)
    options = list_choices(make_request(tools=(TRANSFER, other)), reply="Speak.")
    assert [option.name for option in options] == [
        *("transfer_to_agent: Loans", "transfer_to_agent: Front"),
        *("ask_agent: Loans", "ask_agent: Front", "reply"),
    ]


def test_a_tool_called_reply_does_not_replace_the_reply_choice() -> None:
    tool = ToolSpec("reply", "Reply by letter.", {"type": "object", "properties": {}})
    assert _descriptions(list_choices(make_request(tools=(tool,)), reply="Speak.")) == {
        "reply": "Reply by letter.",
        "reply_": "Speak.",
    }


def test_tools_with_numbers_or_several_parameters_are_one_choice() -> None:
    number = ToolSpec("rate", "", {"type": "object", "properties": {"stars": {"enum": [1, 2]}}})
    both = ToolSpec("move", "", {"type": "object", "properties": {"to": {"enum": ["a"]}, "by": {"type": "string"}}})
    options = list_choices(make_request(tools=(number, both)), reply="Speak.")
    assert [(option.name, option.arguments) for option in options[:2]] == [("rate", None), ("move", None)]
