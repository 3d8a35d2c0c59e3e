"""Arguments of plain types are validated without pydantic, with the same results."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonkit.tools.arguments import ArgumentParser
from batonkit.tools.plain_arguments import PlainArgumentParser, is_plain

HINTS: list[Any] = [str, int, float, bool, list[str], list[int], list[float]]
NAMES = st.sampled_from(["n", "text", "schema", "copy", "_x", "self", "größe"])
DEFAULTS = st.none() | st.text(max_size=3) | st.integers() | st.booleans() | st.floats(allow_nan=False)
parameters = st.dictionaries(NAMES, st.tuples(st.sampled_from(HINTS), st.none() | st.tuples(DEFAULTS)), max_size=4)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["1", "1.5", "true", "on", " 7 ", "\ud800"])
)
values = scalars | st.lists(scalars, max_size=3) | st.dictionaries(NAMES, scalars, max_size=2)
texts = (
    st.dictionaries(NAMES | st.text(max_size=2), values, max_size=4).map(json.dumps)
    | st.text(max_size=6)
    | st.sampled_from(["", " ", "[]", "null", "{}", '{"n": 1, "n": "a"}', '{"n": 1} ', '{"n": 1.0}', '{"n": -0}'])
)


def make_parsers(given_parameters: dict[str, Any], descriptions: dict[str, str]) -> list[Any]:
    hints = {name: hint for name, (hint, _) in given_parameters.items()}
    defaults = {name: default[0] for name, (_, default) in given_parameters.items() if default is not None}
    if not is_plain(hints, defaults):
        # A default that is infinite.
        return [ArgumentParser("t", hints, defaults=defaults, descriptions=descriptions)] * 2
    return [
        kind("t", hints, defaults=defaults, descriptions=descriptions) for kind in (PlainArgumentParser, ArgumentParser)
    ]


@given(parameters, st.dictionaries(NAMES, st.text(max_size=5), max_size=2))
def test_the_schema_is_that_of_pydantic(given_parameters: dict[str, Any], descriptions: dict[str, str]) -> None:
    plain, lenient = make_parsers(given_parameters, descriptions)
    # As text, because the order of keys matters to prompt caches.
    assert json.dumps(plain.schema) == json.dumps(lenient.schema)


@given(parameters, st.lists(texts, min_size=1, max_size=8))
def test_the_results_are_those_of_pydantic(given_parameters: dict[str, Any], written: list[str]) -> None:
    plain, lenient = make_parsers(given_parameters, {})
    for text in written:
        # `repr`, because True == 1 and 1 == 1.0.
        assert repr(plain.parse(text)) == repr(lenient.parse(text))


@given(parameters.filter(bool), st.data())
def test_fitting_arguments_are_accepted_as_they_are(given_parameters: dict[str, Any], data: st.DataObject) -> None:
    plain, lenient = make_parsers(given_parameters, {})
    kinds: dict[Any, st.SearchStrategy[Any]] = {
        str: st.text(max_size=4),
        int: st.integers(),
        float: st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70),
        bool: st.booleans(),
    }
    kinds |= {list[kind]: st.lists(kinds[kind], max_size=3) for kind in (str, int, float)}
    arguments = {name: data.draw(kinds[hint]) for name, (hint, _) in given_parameters.items()}
    parsed = plain.parse(json.dumps(arguments))
    assert repr(parsed) == repr(lenient.parse(json.dumps(arguments)))
    # An integer for a float parameter becomes the nearest float.
    assert parsed == {name: _as_floats(value, given_parameters[name][0]) for name, value in arguments.items()}


def _as_floats(value: Any, hint: Any) -> Any:
    if hint is float:
        return float(value)
    return [float(each) for each in value] if hint == list[float] else value


@pytest.mark.parametrize("hint", [Any, int | None, list[bool], dict[str, int], bytes, "int"])
def test_other_types_are_left_to_pydantic(hint: Any) -> None:
    assert not is_plain({"x": hint}, {})
