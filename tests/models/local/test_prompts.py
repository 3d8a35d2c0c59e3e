"""The prompts of the embedded model for each step."""

import msgspec
import pytest
from tests.models.local.scripted_engine import GET_WEATHER, SECTION, TRANSFER, make_request

from batonkit.messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage, UserMessage
from batonkit.models.local.prompt_texts import PROMPT_TEXTS, Language
from batonkit.models.local.prompts import language_of, list_choices, own_instructions, to_choose, to_fill, to_speak

EN, ZH = PROMPT_TEXTS["en"], PROMPT_TEXTS["zh"]
RESULT = (
    UserMessage("Is it warm in Oslo?"),
    AssistantMessage(tool_calls=(ToolCall("1", "get_weather", '{"city":"Oslo"}'),)),
    ToolMessage("1", "get_weather", "25°C"),
)


@pytest.mark.parametrize("texts", [EN, ZH], ids=["en", "zh"])
def test_the_prompt_texts_do_not_mention_the_demo(texts: object) -> None:
    encoded = msgspec.json.encode(texts).decode().lower()
    for word in ("weather", "city", "beijing", "router", "temperature", "天气", "城市", "北京", "气温"):
        assert word not in encoded


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Is it warm?", "en"),
        ("北京今天天气怎么样？", "zh"),
        ("用 get_weather 查一下天气情况吧", "zh"),
        ("What is 你好?", "en"),
        ("", "en"),
    ],
)
def test_the_language_is_that_of_the_user(text: str, language: Language) -> None:
    context = UserMessage("For context: [Router] called tool: `transfer_to_agent` with arguments: {}.")
    assert language_of(make_request(UserMessage(text), context)) == language


def test_the_choosing_prompt_has_examples_then_options_and_conversation() -> None:
    request = make_request(*RESULT, tools=(GET_WEATHER,), instructions="Report it.")
    system, *examples, question = to_choose(request, list_choices(request, reply=EN.reply), EN)
    assert system.role == "system"
    assert [turn.role for turn in examples] == ["user", "assistant"] * len(EN.choices)
    assert question.text == (
        "Assistant: Desk\nSteps:\n- get_weather: Get the weather.\n- reply: Answer the user in words.\n"
        'Conversation:\nUser: Is it warm in Oslo?\nAssistant called get_weather({"city":"Oslo"})\n'
        "get_weather returned: 25°C\nNext step?"
    )


def test_the_answer_of_each_example_is_one_of_its_steps() -> None:
    for texts in PROMPT_TEXTS.values():
        for examples in texts.choices:
            assert f"- {examples.answer}: " in examples.steps
        for examples in texts.fillings:
            assert isinstance(msgspec.json.decode(examples.answer), dict)


def test_the_filling_prompt_lists_the_parameters_in_one_line() -> None:
    described = msgspec.structs.replace(
        GET_WEATHER,
        parameters={
            "properties": {
                "city": {"type": "string", "description": "Where."},
                "unit": {"enum": ["C", "F"]},
            }
        },
    )
    question = to_fill(make_request(UserMessage("Oslo?")), described, EN)[-1]
    assert question.text == (
        "Tool: get_weather: Get the weather.\nArguments: city (string: Where.), unit (C | F)\n"
        "Conversation:\nUser: Oslo?\nJSON?"
    )


def test_paragraphs_that_repeat_the_choices_are_left_out() -> None:
    request = make_request(tools=(TRANSFER, GET_WEATHER), instructions=f"Use `get_weather`.\n\nBe kind.\n\n{SECTION}")
    assert own_instructions(request, list_choices(request, reply="")) == "Use `get_weather`.\n\nBe kind."


def test_the_reply_prompt_alternates_between_user_and_assistant() -> None:
    request = make_request(
        SystemMessage("Speak of nothing else."),
        UserMessage("Hello"),
        UserMessage("For context: a visitor was here."),
        AssistantMessage("What is it?"),
        *RESULT,
    )
    turns = to_speak(request, list_choices(request, reply=""), EN)
    assert [turn.role for turn in turns] == ["system", "user", "assistant", "user"]
    assert turns[0].text.startswith("Be brief.\n\nSpeak of nothing else.\n\nYou are Desk.")
    assert turns[1].text == "Hello\nFor context: a visitor was here."
    assert turns[3].text == f"Is it warm in Oslo?\n(get_weather returned: 25°C)\n{EN.after_result}"


def test_the_choosing_prompt_has_only_the_latest_messages() -> None:
    request = make_request(*[UserMessage(f"word {number};") for number in range(40)])
    question = to_choose(request, list_choices(request, reply=""), EN)[-1].text
    assert "word 39;" in question
    assert "word 27;" not in question
