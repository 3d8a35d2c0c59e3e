"""Descriptions come from the docstring in any style."""

from typing import Annotated, Any

import pytest
from pydantic import Field

from batonkit.tools import tool

GOOGLE = """Get the weather.

    It asks a satellite. Example: Beijing.

    Args:
        city: The city,
            by its English name.
        days (int, optional): How many days.

    Returns:
        str: The weather.
    """
NUMPY = """Get the weather.

    It asks a satellite. Example: Beijing.

    Parameters
    ----------
    city : str
        The city,
        by its English name.
    days : int, optional
        How many days.

    Returns
    -------
    str
        The weather.
    """
SPHINX = """Get the weather.

    It asks a satellite. Example: Beijing.

    :param city: The city,
        by its English name.
    :param int days: How many days.
    :returns: The weather.
    """


def described(docstring: str | None) -> Any:
    def get_weather(city: str, days: int = 1) -> str:
        return f"{city}{days}"

    get_weather.__doc__ = docstring
    return tool(get_weather).spec


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX])
def test_every_style_says_the_same(docstring: str) -> None:
    spec = described(docstring)
    assert spec.description == "Get the weather.\n\nIt asks a satellite. Example: Beijing."
    assert spec.parameters["properties"]["city"]["description"] == "The city, by its English name."
    assert spec.parameters["properties"]["days"]["description"] == "How many days."


@pytest.mark.parametrize(
    ("docstring", "told"),
    [
        (None, ""),
        ("Just this.", "Just this."),
        ("It does.\n\nReturns:\n    Something.", "It does."),
        ("It does.\n\nReturns\n-------\nstr", "It does."),
        ("It does.\n:returns: something", "It does."),
        ("Args:\n    city: only parameters", ""),
        ("Say one of these:\nreturns: yes", "Say one of these:\nreturns: yes"),
    ],
)
def test_the_description_ends_where_the_sections_begin(docstring: str | None, told: str) -> None:
    assert described(docstring).description == told


def test_annotations_of_a_parameter_override_the_docstring() -> None:
    def get_weather(
        a: Annotated[str, Field(description="field")],
        b: Annotated[str, "noted"],
        c: Annotated[str, "noted", Field(description="field")],
        d: str = Field(default="", description="field"),
        e: Annotated[str, Field(min_length=1)] = "",
    ) -> str:
        """Get it.

        Args:
            a: docstring
            b: docstring
            c: docstring
            d: docstring
            e: docstring
            f: is not a parameter
        """
        return a + b + c + d + e

    properties = tool(get_weather).spec.parameters["properties"]
    told = {name: schema["description"] for name, schema in properties.items()}
    assert told == {"a": "field", "b": "noted", "c": "field", "d": "field", "e": "docstring"}


def test_a_description_given_wins_over_the_docstring() -> None:
    assert tool(described, description="Other.").spec.description == "Other."
    assert tool(described, description="").spec.description == ""
