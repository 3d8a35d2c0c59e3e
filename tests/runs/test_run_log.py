"""The line that is logged when a run stops."""

import logging
import re
from typing import Any

import pytest

from batonkit import Agent, Runner, tool
from batonkit.errors import ModelError
from batonkit.messages import Usage
from batonkit.models import ModelPrice, PriceTable
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, call, say

PRICES = PriceTable({"x:m": ModelPrice(input=10, output=10)})


@tool(needs_approval=True)
async def pay(secret: str) -> str:
    """Pay."""
    return f"paid {secret}"


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines about runs, with `…` for ids and durations."""
    texts = [record.getMessage() for record in caplog.records if record.name == "baton.runs"]
    return [re.sub(r"\d+\.\d+ s", "… s", re.sub(r"`.*`", "`…`", text)) for text in texts]


@pytest.mark.parametrize("store", [None, MemoryStore()], ids=["memory", "stored"])
async def test_each_stop_of_a_run_is_one_line_without_content(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="baton")
    asked = say("secret", call("pay", secret="secret"), usage=Usage(900, 100))
    model = ScriptedModel([asked, say("secret", usage=Usage(1900, 100))], name="x:m")
    runner = Runner(Agent("A", tools=[pay]), model=model, store=store, prices=PRICES)
    stopped = await runner.run("secret")
    result = await runner.resume(stopped.run_id, True)
    await runner.runs.replay(result.events)
    assert lines(caplog) == [
        "run `…` suspended after … s: 1000 tokens, $0.01",
        "run `…` completed after … s: 3000 tokens, $0.03",
    ]
    assert "secret" not in caplog.text


async def test_a_failure_is_logged_with_its_causes_and_without_their_messages(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="baton")
    runner = Runner(Agent("A"), model=ScriptedModel([OSError("secret")], name="x:m"))
    with pytest.raises(ModelError, match="secret"):
        await runner.run("Hi")
    assert lines(caplog) == ["run `…` failed after … s: 0 tokens, $0; ModelError from OSError"]
    assert "secret" not in caplog.text
    caplog.set_level(logging.DEBUG, logger="baton")
    with pytest.raises(ModelError):
        await Runner(Agent("A"), model=ScriptedModel([OSError("secret")])).run("Hi")
    assert "OSError: secret" in caplog.text


async def test_calls_of_unknown_cost_are_logged_as_such(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="baton.runs")
    unknown = ScriptedModel([say("Hi", usage=Usage(5, 5))], name="x:other")
    await Runner(Agent("A"), model=unknown, prices=PRICES).run("Hi")
    assert lines(caplog) == ["run `…` completed after … s: 10 tokens, cost unknown"]


async def test_nothing_is_logged_by_default(capfd: pytest.CaptureFixture[str]) -> None:
    await Runner(Agent("A"), model=ScriptedModel(["Hi"])).run("Hi")
    assert capfd.readouterr() == ("", "")
