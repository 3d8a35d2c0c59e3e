"""Code in the sentences of the docs names parameters and attributes that exist."""

from pathlib import Path

import pytest
from tests.architecture.inline_code import ROOT, pages, sentences, text_of, wrong_names


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_inline_code_names_what_exists(path: Path) -> None:
    assert [*wrong_names(text_of(path))] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Pass `Runner(stor='runs.db')`.", "`Runner(stor='runs.db')`: `Runner` has no parameter `stor`"),
        ("Call `await runner.resumed(id)`.", "`await runner.resumed(id)`: `runner` has no attribute `resumed`"),
        ("With `storr=` it is kept.", "`storr=`: no function has a parameter `storr`"),
        ("| Other | Baton |\n|---|---|\n| `Agent(deps=…)` | `Agent(dependencies=…)` |", "`Agent` has no parameter"),
    ],
)
def test_wrong_names_are_found(text: str, problem: str) -> None:
    (found,) = wrong_names(sentences(text))
    assert problem in found


def test_right_names_are_accepted() -> None:
    text = (
        "`Runner(store='runs.db')`, `runner.run(…, thread='t')`, `ctx.interrupt(…)`\n\n```python\nAgent(nothing=1)\n```"
    )
    assert [*wrong_names(sentences(text))] == []


def test_outcomes_of_other_frameworks_are_left_out() -> None:
    outcomes = "<!-- outcomes:start -->\n- `max_handoffs=20`\n<!-- outcomes:end -->\n"
    assert [*wrong_names(sentences(outcomes))] == []
    assert len([*wrong_names(sentences(f"{outcomes}`max_handoffs=20`"))]) == 1
