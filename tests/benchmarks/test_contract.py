"""The handoff probes: Baton's outcomes are those that are recorded, and the tables show what is recorded."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from benchmarks.contract.case import BILLING, SHIPPING, TRIAGE, Call, Reply, Request, Script, Seen, Transfer
from benchmarks.contract.environments import BATON, ENVIRONMENTS
from benchmarks.contract.peers.baton import Runner
from benchmarks.contract.probes import PROBES, Outcome, facts, history_problems, merged, observe
from benchmarks.contract.table import (
    MIXTURE,
    PAGE,
    SITUATIONS,
    TITLES,
    blocks_of,
    full_table,
    load,
    markers,
    outcome_list,
    short_table,
    write_page,
)

REPOSITORY = Path(__file__).parents[2]


async def check_recorded_outcome(probe: str) -> None:
    recorded = load()["peers"][BATON]["probes"][probe]
    outcome = await observe(Runner(), probe)
    assert (outcome.short, outcome.detail) == (recorded["short"], recorded.get("detail", ""))


@pytest.mark.parametrize("probe", [probe for probe in PROBES if probe != "crash"])
async def test_the_outcomes_of_baton_are_those_that_are_recorded(probe: str) -> None:
    await check_recorded_outcome(probe)


def test_every_framework_has_every_probe() -> None:
    results = load()
    assert [*results["peers"]] == [*ENVIRONMENTS]
    assert results["date"] >= "2026-11-01"
    for name, peer in results["peers"].items():
        assert [*peer["probes"]] == [*PROBES] == [*TITLES], name
        assert peer["version"], name


@pytest.mark.parametrize("name", ["mixture", "situations", "outcomes"])
def test_the_page_shows_the_recorded_outcomes(name: str) -> None:
    start, end = markers(name)
    shown = PAGE.read_text(encoding="utf-8").partition(start)[2].partition(end)[0].strip()
    assert shown == blocks_of(load())[name], "run: python -m benchmarks.contract --recorded --page"


@pytest.mark.parametrize("name", ["README.md", "README.zh.md", "docs/compare.md"])
def test_the_date_of_the_outcomes_is_stated(name: str) -> None:
    assert load()["date"] in (REPOSITORY / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("probe", ["ping_pong", "crash", "next_message"])
def test_the_small_table_of_the_readme_shows_the_recorded_outcomes(probe: str) -> None:
    peers = load()["peers"]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
    ]
    names = [heading.rpartition(" ") for heading in rows[0][1:]]
    assert [version for _, _, version in names] == [peers[name.lower()]["version"] for name, _, _ in names]
    column = next(column for column in SITUATIONS if column.probe == probe)
    (row,) = (row for row in rows if row[0] == column.heading)
    assert row[1:] == [column.cell(peers[name.lower()]) for name, _, _ in names]


def test_the_blocks_are_written_between_their_markers(tmp_path: Path) -> None:
    page, results = tmp_path / "page.md", load()
    old = "".join(f"{name}\n{start}\nold\n{end}\n" for name in blocks_of(results) for start, end in [markers(name)])
    page.write_text(old, encoding="utf-8")
    write_page(results, page)
    text = page.read_text(encoding="utf-8")
    assert text.startswith(
        f"mixture\n<!-- mixture:start -->\n\n{short_table(results, MIXTURE)}\n\n<!-- mixture:end -->\n"
    )
    assert text.endswith(f"<!-- outcomes:start -->\n\n{outcome_list(results)}\n\n<!-- outcomes:end -->\n")
    write_page(results, page)
    assert page.read_text(encoding="utf-8") == text


def test_a_page_without_markers_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Nothing\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"page\.md has no `<!-- mixture:start -->`"):
        write_page(load(), page)


def test_an_outcome_that_no_column_can_shorten_is_refused() -> None:
    peer = {"probes": {column.probe: {"short": "the moon rises"} for column in (*MIXTURE, *SITUATIONS)}}
    for column in (*MIXTURE, *SITUATIONS):
        with pytest.raises(ValueError, match=f"`{column.heading}` has no pattern for `the moon rises`"):
            column.cell(peer)


def test_the_whole_table_has_every_outcome() -> None:
    results = load()
    table = full_table(results)
    for peer in results["peers"].values():
        for outcome in peer["probes"].values():
            assert outcome["short"] in table
            assert outcome.get("note", "") in table


CALL, ANSWER = Seen("assistant", calls=("1",)), Seen("tool", "done", answers=("1",))


@pytest.mark.parametrize(
    ("messages", "problems"),
    [
        ((CALL, ANSWER), []),
        ((CALL,), ["1 call without a result"]),
        ((CALL, ANSWER, ANSWER), ["1 call with two results"]),
        ((ANSWER,), ["1 call of results without a call"]),
        ((Seen("assistant", calls=("1", "2")), ANSWER), ["1 call without a result"]),
    ],
)
def test_histories_that_a_provider_would_refuse(messages: tuple[Seen, ...], problems: list[str]) -> None:
    assert history_problems(Request(TRIAGE, messages)) == problems


def played(*requests: tuple[str, tuple[Seen, ...]], effects: tuple[str, ...] = ()) -> Script:
    """Return a script with these requests and effects."""
    script = Script({name: [Reply("done")] for name in (TRIAGE, BILLING, SHIPPING)})
    for agent, messages in requests:
        script.respond(agent, messages)
    for effect in effects:
        script.act(effect)
    return script


@pytest.mark.parametrize(
    ("script", "error", "short"),
    [
        (
            played((TRIAGE, ()), (BILLING, (Seen("user", "order A-17 is paid"),)), effects=("look_up",)),
            "",
            "1/1 tools run; control: billing; 1/1 results read; valid history",
        ),
        (
            played((TRIAGE, ()), (BILLING, (CALL,))),
            "",
            "0/1 tools run; control: billing; 0/1 results read; invalid history (1 call without a result)",
        ),
        (played((TRIAGE, ())), "Broken: it is", "Broken; 0/1 tools run; no agent continues"),
        (
            played((TRIAGE, ()), (BILLING, ()), (SHIPPING, ()), effects=("look_up", "look_up")),
            "",
            "1/1 tools run (2x); control: billing → shipping; 0/1 results read; valid history",
        ),
    ],
)
def test_the_facts_are_read_off_what_happened(script: Script, error: str, short: str) -> None:
    assert facts(script, error, ("look_up",)).short == short


@pytest.mark.parametrize(
    ("outcomes", "short"),
    [
        (["control: billing; valid history"] * 2, "control: billing; valid history"),
        (
            ["control: shipping; valid history", "control: billing; valid history"],
            "control: billing or shipping (varies); valid history",
        ),
        (["no agent continues", "control: billing"], "control: billing or no agent continues (varies)"),
        (["Broken; a", "a"], "Broken; a or a (varies)"),
    ],
)
def test_facts_that_vary_from_run_to_run_are_joined(outcomes: list[str], short: str) -> None:
    assert merged([Outcome(each, f"detail of {each}") for each in outcomes]).short == short


async def test_a_race_inside_one_response_is_found() -> None:
    class Racing(Runner):
        runs = 0

        async def converse(self, script: Script, *messages: str) -> list[str]:
            self.runs += 1
            script.respond(TRIAGE, [])
            script.respond(SHIPPING if self.runs == 7 else BILLING, [])
            return []

    assert (await observe(Racing(), "two_transfers")).short == "control: billing or shipping (varies); valid history"


async def test_a_framework_that_never_stops_is_stopped() -> None:
    class Endless(Runner):
        async def converse(self, script: Script, *messages: str) -> list[str]:
            while True:
                script.respond(TRIAGE, [])

    assert (await observe(Endless(), "ping_pong")).short == "not stopped within 600 model calls"


async def test_a_missing_feature_is_said_with_what_there_is_instead() -> None:
    class Without(Runner):
        missing: Mapping[str, str] = {"interrupt": "approval before a call"}

    assert await observe(Without(), "interrupt") == Outcome("no such feature", "approval before a call")


def test_calls_get_ids_and_transfers_become_calls_of_the_framework() -> None:
    script = played()
    calls = script.encode(
        Reply(calls=(Call("look_up", {"order": "1"}), Transfer(BILLING))), lambda to: Call(f"to_{to}")
    )
    assert calls == [("call_1", "look_up", {"order": "1"}), ("call_2", "to_billing", {})]
