"""The display of a result in notebooks."""

from html.parser import HTMLParser
from typing import Any

import pytest
from pydantic import BaseModel

from batonkit import Agent, ParallelAgent, RunContext, Runner, tool
from batonkit.errors import ModelError
from batonkit.messages import Usage
from batonkit.runs import RunResult, RunStream
from batonkit.testing import ScriptedModel, call, say, transfer_to


class _Table(HTMLParser):
    """Reads the rows of a table; every tag that is opened must be closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ("table", "tr", "th", "td", "code")
        self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def rows_of(result: RunResult[Any]) -> dict[str, str]:
    """Return the rows of the display by their titles."""
    return {row[0]: row[1] for row in _Table(result._repr_html_()).rows}


class Trip(BaseModel):
    """An output type."""

    city: str


@tool
async def ask(ctx: RunContext) -> str:
    """Ask."""
    return str(await ctx.interrupt({"question": "Which <city>?"}))


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return "paid"


async def test_a_result_shows_its_path_answer_and_cost() -> None:
    pick = Agent("Pick", description="Picks.", model=ScriptedModel(["red"]))
    weather = Agent(
        "Weather",
        tools=[pick.as_tool("pick")],
        model=ScriptedModel([call("pick", request="x"), say("Sunny.", usage=Usage(1000, 20, cost=0.0125))]),
    )
    router = Agent("Router", sub_agents=[weather], model=ScriptedModel([transfer_to("Weather")]))
    result = await Runner(router).run("hi", run_id="r1")
    assert rows_of(result) == {
        "run": "r1, completed",
        "agents": "Router → Weather",
        "answer": "Sunny.",
        "usage": "4 model calls, 1,020 tokens, $0.0125",
    }


async def test_text_of_models_and_users_is_escaped_and_cut() -> None:
    words = "<script>alert(1)</script>&\n" + "x" * 10_000
    result = await Runner(Agent("<b>A", model=ScriptedModel([words]))).run("hi")
    html = result._repr_html_()
    assert "<script>" not in html
    assert "<b>" not in html
    assert len(html) < 4000
    shown = rows_of(result)
    assert shown["agents"] == "<b>A"
    assert shown["answer"].startswith("<script>alert(1)</script>&\nxxx")
    assert shown["answer"].endswith("…")


async def test_open_questions_are_shown_with_the_way_to_answer_them() -> None:
    model = ScriptedModel([say("", call("ask"), call("pay", amount=3))])
    result = await Runner(Agent("Desk", tools=[ask, pay], model=model)).run("hi", run_id="r1")
    shown = rows_of(result)
    assert shown["run"] == "r1, suspended"
    first, second = result.interrupts
    assert shown[f"question {first.id}"] == "Desk: Which <city>?"
    assert shown[f"question {second.id}"] == 'Desk: allow pay({"amount":3})?'
    assert shown["to go on"] == f"await runner.resume('r1', {{'{first.id}': …, '{second.id}': …}})"
    assert "answer" not in shown


async def _read(run: RunStream[Any]) -> None:
    async with run:
        async for _ in run:
            pass


async def test_a_failure_is_shown_with_its_message() -> None:
    runner = Runner(Agent("Desk", model=ScriptedModel([ModelError("the <line> is dead")])))
    run = runner.stream("hi", run_id="r1")
    with pytest.raises(ModelError):
        await _read(run)
    shown = rows_of(run.result)
    assert shown["run"] == "r1, failed"
    assert shown["error"].startswith("ModelError: the <line> is dead")
    assert shown["to go on"] == "await runner.resume('r1')"


async def test_typed_and_joined_outputs_are_shown() -> None:
    typed = await Runner(Agent("A", output_type=Trip, model=ScriptedModel(['{"city": "Rome"}']))).run("hi")
    assert rows_of(typed)["answer"] == "Trip(city='Rome')"
    branches = [Agent(name, model=ScriptedModel([name.lower()])) for name in ("B", "C")]
    joined = await Runner(ParallelAgent("Both", sub_agents=branches)).run("hi")
    assert rows_of(joined)["answer"] == "{'B': 'b', 'C': 'c'}"


async def test_calls_of_unknown_cost_are_counted() -> None:
    model = ScriptedModel([say("hi", usage=Usage(5, 1))], name="large")
    result = await Runner(Agent("A", model=model)).run("hi")
    assert rows_of(result)["usage"] == "1 model call, 1 of unknown cost, 6 tokens"


async def test_a_long_path_is_shortened_in_the_middle() -> None:
    team = Agent("A11", model=ScriptedModel(["done"]))
    for number in range(10, -1, -1):
        model = ScriptedModel([call(f"transfer_to_{team.name.lower()}")])
        team = Agent(f"A{number}", handoffs=[team], model=model)
    result = await Runner(team).run("hi")
    assert rows_of(result)["agents"] == "A0 → A1 → A2 → A3 → A4 → … 4 more … → A9 → A10 → A11"
