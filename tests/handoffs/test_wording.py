"""What a model is told about the agents it may transfer to."""

import pytest

from baton import Agent
from baton.flow import Team
from baton.handoffs import Language


@pytest.mark.parametrize("language", ["en", "zh"])
def test_names_and_descriptions_are_told_as_they_are_whatever_is_in_them(language: Language) -> None:
    # T12: braces, percent signs and line breaks are nobody's template.
    child = Agent("A {agents} %s", description="{tool} 100% {0}\nsecond line")
    section = Team.compile(Agent("Root", sub_agents=[child]), language=language).seats["Root"].routes.section
    assert "- A {agents} %s: {tool} 100% {0}\nsecond line\n" in section
    assert "`transfer_to_agent`" in section


def test_the_two_languages_differ() -> None:
    # T12
    root = Agent("Root", sub_agents=[Agent("B", description="b")])
    english, chinese = (Team.compile(root, language=language).seats["Root"].routes for language in ("en", "zh"))
    assert english.section != chinese.section
    assert english.specs[0].description != chinese.specs[0].description
    assert english.section.isascii()
    assert not chinese.section.isascii()
    assert english.specs[0].parameters["required"] == chinese.specs[0].parameters["required"]
