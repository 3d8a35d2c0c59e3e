"""The default name of a handoff's tool is valid for every provider and unique per agent."""

import re
import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st

from batonkit.handoffs import default_tool_name

_VALID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_letters = st.characters(codec="utf-8")
_names = st.one_of(
    st.text(st.sampled_from("aAbB_- éÉ客服2²"), min_size=1, max_size=6), st.text(_letters, min_size=1, max_size=80)
).filter(lambda name: bool(name.strip()))


def _folded(name: str) -> str:
    """Normalise what tool names do not distinguish: case, whitespace, hyphens, diacritics and letter variants."""
    plain = unicodedata.normalize("NFKD", "_".join(name.split())).replace("-", "_")
    return "".join(letter for letter in plain if not unicodedata.combining(letter)).casefold()


@given(name=_names)
@example("客服")
@example("a" * 80)
@example("\u0308")
def test_a_tool_name_is_valid_and_deterministic(name: str) -> None:
    tool = default_tool_name(name)

    assert _VALID.fullmatch(tool)
    assert tool.startswith("transfer_to")
    assert default_tool_name(name) == tool


@given(one=_names, other=_names)
@example("客服", "销售")
@example("a.b", "ab")
@example("a" * 80, "a" * 79 + "b")
def test_different_agents_have_different_tools(one: str, other: str) -> None:
    if _folded(one) != _folded(other):
        assert default_tool_name(one) != default_tool_name(other)


@given(name=st.text(st.sampled_from("abcXYZ019_-"), min_size=1, max_size=50))
def test_a_plain_name_is_kept_in_lower_case_with_underscores(name: str) -> None:
    assert default_tool_name(name) == f"transfer_to_{name.lower().replace('-', '_')}"


@given(words=st.lists(st.text(st.sampled_from("abc"), min_size=1, max_size=4), min_size=2, max_size=4))
def test_whitespace_becomes_an_underscore(words: list[str]) -> None:
    assert default_tool_name(" ".join(words)) == "transfer_to_" + "_".join(words)
