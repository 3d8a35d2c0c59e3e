"""What the embedded model reads at each step."""

import msgspec
import pytest
from tests.models.local.stage import GET_WEATHER, SECTION, TRANSFER, asked

from baton.messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage, UserMessage
from baton.models.local.prompt_texts import PROMPT_TEXTS, Language
from baton.models.local.prompts import language_of, list_choices, own_instructions, to_choose, to_fill, to_speak

EN, ZH = PROMPT_TEXTS["en"], PROMPT_TEXTS["zh"]
RESULT = (
    UserMessage("Is it warm in Oslo?"),
    AssistantMessage(tool_calls=(ToolCall("1", "get_weather", '{"city":"Oslo"}'),)),
    ToolMessage("1", "get_weather", "25°C"),
)


@pytest.mark.parametrize("words", [EN, ZH], ids=["en", "zh"])
def test_nothing_is_known_of_the_demo(words: object) -> None:
    said = msgspec.json.encode(words).decode().lower()
    for word in ("weather", "city", "beijing", "router", "temperature", "天气", "城市", "北京", "气温"):
        assert word not in said


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
def test_the_language_is_the_users(text: str, language: Language) -> None:
    context = UserMessage("For context: [Router] called tool: `transfer_to_agent` with arguments: {}.")
    assert language_of(asked(UserMessage(text), context)) == language


def test_choosing_shows_the_agent_the_options_and_the_conversation_after_the_demonstrations() -> None:
    request = asked(*RESULT, tools=(GET_WEATHER,), instructions="Report it.")
    system, *shown, question = to_choose(request, list_choices(request, reply=EN.reply), EN)
    assert system.role == "system"
    assert [turn.role for turn in shown] == ["user", "assistant"] * len(EN.choices)
    assert question.text == (
        "Assistant: Desk\nSteps:\n- get_weather: Get the weather.\n- reply: Answer the user in words.\n"
        'Conversation:\nUser: Is it warm in Oslo?\nAssistant called get_weather({"city":"Oslo"})\n'
        "get_weather returned: 25°C\nNext step?"
    )


def test_each_demonstrated_answer_is_among_its_steps() -> None:
    for words in PROMPT_TEXTS.values():
        for shown in words.choices:
            assert f"- {shown.answer}: " in shown.steps
        for shown in words.fillings:
            assert isinstance(msgspec.json.decode(shown.answer), dict)


def test_filling_in_shows_the_parameters_in_a_line() -> None:
    described = msgspec.structs.replace(
        GET_WEATHER,
        parameters={
            "properties": {
                "city": {"type": "string", "description": "Where."},
                "unit": {"enum": ["C", "F"]},
            }
        },
    )
    question = to_fill(asked(UserMessage("Oslo?")), described, EN)[-1]
    assert question.text == (
        "Tool: get_weather: Get the weather.\nArguments: city (string: Where.), unit (C | F)\n"
        "Conversation:\nUser: Oslo?\nJSON?"
    )


def test_paragraphs_about_what_the_options_say_are_left_out() -> None:
    request = asked(tools=(TRANSFER, GET_WEATHER), instructions=f"Use `get_weather`.\n\nBe kind.\n\n{SECTION}")
    assert own_instructions(request, list_choices(request, reply="")) == "Use `get_weather`.\n\nBe kind."


def test_speaking_alternates_between_user_and_assistant_whatever_the_messages_are() -> None:
    request = asked(
        SystemMessage("Speak of nothing else."),
        UserMessage("Hello"),
        UserMessage("For context: somebody was here."),
        AssistantMessage("What is it?"),
        *RESULT,
    )
    turns = to_speak(request, list_choices(request, reply=""), EN)
    assert [turn.role for turn in turns] == ["system", "user", "assistant", "user"]
    assert turns[0].text.startswith("Be brief.\n\nSpeak of nothing else.\n\nYou are Desk.")
    assert turns[1].text == "Hello\nFor context: somebody was here."
    assert turns[3].text == f"Is it warm in Oslo?\n(get_weather returned: 25°C)\n{EN.after_result}"


def test_only_the_newest_of_a_long_conversation_is_read_to_decide() -> None:
    request = asked(*[UserMessage(f"word {number};") for number in range(40)])
    question = to_choose(request, list_choices(request, reply=""), EN)[-1].text
    assert "word 39;" in question
    assert "word 27;" not in question
