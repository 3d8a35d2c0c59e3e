"""Messages of a user as answers to the questions of agents."""

from typing import Any

import pytest
from tests.serve.openai.clients import chat, serve_model, text_of

from batonkit import Agent, RunContext, tool
from batonkit.errors import AnswerError
from batonkit.log.events import Interrupt
from batonkit.messages import ToolCall
from batonkit.serve.openai.chat_answers import WORDS, ChatAnswers
from batonkit.testing import ScriptedModel, call

APPROVAL = Interrupt(
    "1/m1.0/ask1", "Desk", (), {"kind": "approval", "tool": "pay", "arguments": {}}, ToolCall("c", "pay")
)


def question(payload: Any, schema: dict[str, Any] | None = None) -> Interrupt:
    return Interrupt("1/m1.0/ask1", "Desk", (), payload, ToolCall("c", "ask"), schema)


@pytest.mark.parametrize("language", WORDS)
def test_each_language_has_words_that_approve_and_words_that_reject(language: str) -> None:
    yes, no = WORDS[language]
    answers = ChatAnswers([language])
    assert {answers.parse(APPROVAL, f" {word.upper()}! ") for word in yes} == {True}
    assert {answers.parse(APPROVAL, word) for word in no} == {False}
    assert f"“{yes[0]}” or “{no[0]}”" in answers.ask([APPROVAL], in_chat=True)


def test_words_of_other_languages_and_sentences_are_not_clear() -> None:
    for text in ("ja", "yes, but not today", "", "yes no"):
        with pytest.raises(AnswerError, match="not clear"):
            ChatAnswers(["en"]).parse(APPROVAL, text)


def test_the_form_of_an_answer_follows_the_question() -> None:
    answers = ChatAnswers(["en"])
    assert answers.parse(question("Which one?"), "no") == "no"
    assert answers.parse(question("Which one?", {"type": "string"}), '"x"') == '"x"'
    assert answers.parse(question("Sure?", {"type": "boolean"}), "Yes.") is True
    assert answers.parse(question("How many?", {"type": "integer"}), "3") == 3
    with pytest.raises(AnswerError, match="not JSON"):
        answers.parse(question("How many?", {"type": "integer"}), "three")
    unknown = question({"kind": "unknown_outcome"})
    assert answers.parse(unknown, '{"happened": false}') == {"happened": False}


def test_a_question_shows_its_text_and_its_choices() -> None:
    asked = question({"question": "At what time?", "times": ["18:00"]})
    assert ChatAnswers(["en"]).ask([asked], in_chat=True) == 'Desk asks: At what time? {"times": ["18:00"]}'


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool
async def ask_name(ctx: RunContext) -> str:
    """Ask for the name."""
    return await ctx.interrupt("What is your name?")


async def test_several_questions_are_asked_one_after_the_other() -> None:
    model = ScriptedModel([[call("pay", amount=1), call("pay", amount=2), call("ask_name")], "Thanks."])
    async with serve_model(Agent("Desk", model=model, tools=[pay, ask_name]), answer_in_chat=True) as client:
        assert '{"amount": 1}' in text_of(await chat(client, "Pay twice.", thread="t"))
        assert '{"amount": 2}' in text_of(await chat(client, "yes", thread="t"))
        assert text_of(await chat(client, "no", thread="t")) == "Desk asks: What is your name?"
        assert text_of(await chat(client, "Ada", thread="t")) == "Thanks."
    results = [str(message.content) for message in model.requests[-1].messages[-3:]]
    assert (results[0], results[2]) == ("paid 1", "Ada")
    assert "paid" not in results[1]
