"""Texts about transfers in instructions and tool descriptions."""

from typing import Any

import pytest

from batonkit import Agent, SetupError, then_transfer
from batonkit.agents import with_guardrails
from batonkit.handoffs import PromptLanguage
from batonkit.team import Team


@pytest.mark.parametrize("language", ["en", "zh"])
def test_names_and_descriptions_are_inserted_unchanged(language: PromptLanguage) -> None:
    # Braces, percent signs and line breaks are not interpreted.
    child = Agent("A {agents} %s", description="{tool} 100% {0}\nsecond line")
    section = Team.compile(Agent("Root", sub_agents=[child]), language=language).members["Root"].routes.section
    assert "- A {agents} %s: {tool} 100% {0}\nsecond line\n" in section
    assert "`transfer_to_agent`" in section


def test_the_two_languages_differ() -> None:
    root = Agent("Root", sub_agents=[Agent("B", description="b")])
    english, chinese = (Team.compile(root, language=language).members["Root"].routes for language in ("en", "zh"))
    assert english.section != chinese.section
    assert english.specs[0].description != chinese.specs[0].description
    assert english.section.isascii()
    assert not chinese.section.isascii()
    assert english.specs[0].parameters["required"] == chinese.specs[0].parameters["required"]


@pytest.mark.parametrize(
    ("language", "expected"), [("en", "For example: “Hot?” “Cold?”"), ("zh", "例如：“Hot?” “Cold?”")]
)
def test_examples_follow_the_description(language: PromptLanguage, expected: str) -> None:
    child = Agent("Weather", description="Knows it.", examples=["Hot?", "Cold?"])
    tree = Team.compile(Agent("Root", sub_agents=[child]), language=language).members["Root"].routes
    assert f"- Weather: Knows it. {expected}\n" in tree.section
    edges = Team.compile(Agent("Root", handoffs=[child]), language=language).members["Root"].routes
    assert edges.specs[0].description == f"Handoff to the Weather agent to handle the request. Knows it. {expected}"


def test_wrappers_keep_the_examples() -> None:
    child = then_transfer(with_guardrails(Agent("Weather", examples=["Hot?"]), input_guardrails=()), to="Root")
    section = Team.compile(Agent("Root", sub_agents=[child])).members["Root"].routes.section
    assert "- Weather: For example: “Hot?”\n" in section


@pytest.mark.parametrize("examples", ["Hot?", [7], 7])
def test_examples_must_be_a_list_of_texts(examples: Any) -> None:
    with pytest.raises(SetupError, match=r"`Weather` has examples=.*; give a list of questions"):
        Agent("Weather", examples=examples)
