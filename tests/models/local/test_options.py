"""What can be chosen, and how it is described."""

from tests.models.local.stage import GET_WEATHER, SECTION, TRANSFER, asked

from baton.messages import ToolSpec
from baton.models.local.prompts import Choice, list_choices


def _named(options: tuple[Choice, ...]) -> dict[str, str]:
    return {option.name: option.description for option in options}


def test_values_are_described_by_the_list_in_the_instructions() -> None:
    options = list_choices(asked(tools=(TRANSFER, GET_WEATHER), instructions=SECTION), reply="Speak.")
    assert _named(options) == {
        "Loans": "Lends books.",
        "Front": "Everything else.",
        "get_weather": "Get the weather.",
        "reply": "Speak.",
    }


def test_values_of_two_tools_that_are_alike_are_told_apart() -> None:
    other = ToolSpec("ask_agent", "", TRANSFER.parameters)
    options = list_choices(asked(tools=(TRANSFER, other)), reply="Speak.")
    assert [option.name for option in options] == [
        *("transfer_to_agent: Loans", "transfer_to_agent: Front"),
        *("ask_agent: Loans", "ask_agent: Front", "reply"),
    ]


def test_a_tool_called_reply_is_not_the_reply() -> None:
    tool = ToolSpec("reply", "Reply by letter.", {"type": "object", "properties": {}})
    assert _named(list_choices(asked(tools=(tool,)), reply="Speak.")) == {
        "reply": "Reply by letter.",
        "reply_": "Speak.",
    }


def test_numbers_and_several_parameters_are_filled_in_rather_than_chosen() -> None:
    number = ToolSpec("rate", "", {"type": "object", "properties": {"stars": {"enum": [1, 2]}}})
    both = ToolSpec("move", "", {"type": "object", "properties": {"to": {"enum": ["a"]}, "by": {"type": "string"}}})
    options = list_choices(asked(tools=(number, both)), reply="Speak.")
    assert [(option.name, option.arguments) for option in options[:2]] == [("rate", None), ("move", None)]
