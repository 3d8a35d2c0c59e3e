"""The migration pages say what replaces each name that users look for, and one page compares the history policies."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"

# Names that users of these frameworks look for.
EINO = ("GenModelInput", "MessageModifier", "OnError", "DesignateAgent", "WithToolOptions", "TurnLoop")
OPENAI = ("call_model_input_filter", "tool_use_behavior", "@function_tool(is_enabled", "RunState.add_input")

AUTOGEN = ("SelectorGroupChat", "RoundRobinGroupChat", "UserProxyAgent", "save_state", "TextMentionTermination")
SWARM = ("create_swarm", "create_handoff_tool", "Command(goto", 'state["active_agent"]', "add_active_agent_router")
NAMES = {
    "from-eino": EINO,
    "from-openai-agents": OPENAI,
    "from-autogen": AUTOGEN,
    "from-langgraph-swarm": SWARM,
}


@pytest.mark.parametrize(("page", "name"), [(page, name) for page, names in NAMES.items() for name in names])
def test_a_migration_page_has_a_row_for_the_name(page: str, name: str) -> None:
    rows = [line for line in (DOCS / "migration" / f"{page}.md").read_text().splitlines() if line.startswith("| ")]
    found = [row for row in rows if name in row.split(" | ")[0]]
    assert found, f"{page}.md has no row for {name}"
    assert all(row.split(" | ")[1].strip(" |") for row in found)


def test_one_page_compares_all_history_policies() -> None:
    # The fences of the page show the messages; the table has a row and the page a section for each policy.
    text = (DOCS / "concepts" / "history.md").read_text()
    for policy in ("rewritten", "verbatim", "lineage", "answers", "none"):
        assert re.search(rf'^\| \[`"{policy}"`\]\(#{policy}\)[^|]* \| \S[^|]* \| \S', text, re.MULTILINE), policy
        assert re.search(rf"^### {policy}$", text, re.MULTILINE), policy
