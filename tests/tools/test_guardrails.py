"""Guardrails have names, run once per position, and their verdicts are recorded."""

from functools import partial
from typing import Any

import msgspec
import pytest
from tests.tools.conftest import MakeContext

from batonkit import GuardrailVerdict, RunContext, SetupError, guardrail
from batonkit.log import StepCompleted
from batonkit.tools import Guardrail
from batonkit.tools.tool_guardrails import GuardrailChecks, parse_verdict, to_guardrails


def polite(ctx: RunContext[Any], given: str) -> bool:
    return given != "rude"


def test_a_guardrail_has_the_name_of_its_function_or_one_of_its_own() -> None:
    assert guardrail(polite) == Guardrail("polite", polite)
    assert guardrail(polite, name="manners").name == "manners"
    assert guardrail(guardrail(polite), name="manners").name == "manners"
    assert guardrail(name="manners")(polite).name == "manners"
    assert guardrail(partial(polite), name="part").name == "part"
    assert guardrail(guardrail(polite)) == guardrail(polite)


def test_a_guardrail_is_called_like_its_function(ctx: RunContext[Any]) -> None:
    assert guardrail(polite)(ctx, "rude") is False


def test_a_name_must_be_text() -> None:
    untyped: Any = guardrail
    with pytest.raises(SetupError, match="has no name to record its verdict under"):
        untyped(polite, name=3)


def test_a_callable_without_a_signature_is_taken_as_it_is() -> None:
    untyped: Any = guardrail
    assert untyped(max, name="largest").name == "largest"


def test_a_verdict_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        GuardrailVerdict(True).passed = False  # pyright: ignore[reportAttributeAccessIssue]
    assert msgspec.json.encode(GuardrailVerdict(False, "no")) == b'{"passed":false,"reason":"no"}'


async def test_verdicts_are_found_again_by_place_stage_and_name(make_context: MakeContext) -> None:
    asked: list[str] = []

    def judge(ctx: RunContext[Any], given: str) -> GuardrailVerdict:
        asked.append(given)
        ctx.values.set("judged", given)
        return GuardrailVerdict(True, "fine", (1, 2))

    ((one,),) = to_guardrails("a test", input=[judge])
    ctx = make_context()
    checks = GuardrailChecks([one], ctx, "input")
    assert not checks.are_decided
    await checks.enforce("first")
    (event,) = ctx._run.log.events
    assert isinstance(event, StepCompleted)
    assert (event.key, event.name) == ("1/m1.0/guardrail:input:judge", "guardrail:input:judge")
    assert parse_verdict(event) == ("input", "judge", GuardrailVerdict(True, "fine", [1, 2]))
    again = make_context([event])
    assert GuardrailChecks([one], again, "input").are_decided
    await GuardrailChecks([one], again, "input").enforce("second")
    assert (asked, dict(again.values)) == (["first"], {"judged": "first"})
    # Inside a call, what it wrote is recorded with the call as well.
    assert again._take_changes() == event.value_changes
    for other in (
        GuardrailChecks([one], again, "output"),
        GuardrailChecks([one], make_context([event], scope="1/m1.1"), "input"),
    ):
        assert not other.are_decided
        await other.enforce("third")
    assert asked == ["first", "third", "third"]


async def test_without_guardrails_nothing_is_recorded(ctx: RunContext[Any]) -> None:
    assert GuardrailChecks([], ctx, "output").are_decided
    await GuardrailChecks([], ctx, "output").enforce("anything")
    assert ctx._run.log.events == []


def test_other_steps_are_no_verdicts(ctx: RunContext[Any]) -> None:
    assert parse_verdict(StepCompleted("1/step:look", ctx._origin, 0.0, "look", 1)) is None
    assert parse_verdict(StepCompleted("1/step:guardrail:input:x", ctx._origin, 0.0, "guardrail:input:x", 1)) is None
