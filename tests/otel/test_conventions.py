"""The names of attributes and metrics, checked against a copy of OpenTelemetry's registry and the documentation."""

from collections.abc import Mapping
from typing import Any, cast

from msgspec.structs import replace
from pydantic import BaseModel
from tests.otel import registry, tables
from tests.otel.receiver import exporting

from batonkit import Agent, Approval, Runner, handoff, tool
from batonkit.messages import Usage
from batonkit.models import ModelSettings
from batonkit.otel.attributes import ATTRIBUTES, SCHEMA_URL
from batonkit.otel.metrics import METRICS
from batonkit.testing import ScriptedModel, call, say


def test_names_are_those_of_the_registry_or_our_own() -> None:
    ours = {name for name in ATTRIBUTES if name.startswith("gen_ai.")}
    assert ours <= registry.ATTRIBUTES - registry.DEPRECATED
    # The only others are a general attribute, and two of OpenInference that Phoenix and Langfuse read.
    others = {name for name in ATTRIBUTES if not name.startswith(("gen_ai.", "baton."))}
    assert others == {"error.type", "input.value", "openinference.span.kind", "output.value", "user.id"}
    assert {name for name in METRICS if name.startswith("gen_ai.")} <= registry.METRICS
    assert all(name.startswith(("gen_ai.", "baton.")) for name in METRICS)


def test_the_copy_of_the_registry_fits_the_installed_one() -> None:
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
    from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
    from opentelemetry.semconv.schemas import Schemas

    def names(module: Any) -> set[str]:
        found = cast("Mapping[str, Any]", vars(module))
        return {value for name, value in found.items() if name.startswith("GEN_AI") and isinstance(value, str)}

    used = {name for name in ATTRIBUTES if name.startswith("gen_ai.")}
    assert used <= names(gen_ai_attributes)
    assert {name for name in METRICS if name.startswith("gen_ai.")} <= names(gen_ai_metrics)
    assert SCHEMA_URL in {schema.value for schema in Schemas}


def test_the_documentation_has_the_current_tables() -> None:
    page = tables.PAGE.read_text()
    assert tables.with_tables(page) == page, "run: PYTHONPATH=. python tests/otel/tables.py"


class Reason(BaseModel):
    """The reason for a transfer."""

    topic: str


@tool
async def look_up(city: str) -> str:
    """Look it up."""
    return city


@tool
async def fail() -> str:
    """Fail."""
    raise ValueError("no")


@tool(needs_approval=True)
async def pay(euro: int) -> str:
    """Pay."""
    return str(euro)


async def test_spans_have_no_attributes_that_the_table_lacks() -> None:
    settings = ModelSettings(
        temperature=1,
        top_p=1,
        top_k=1,
        max_tokens=9,
        presence_penalty=1,
        frequency_penalty=1,
        seed=1,
        stop_sequences=("x",),
    )
    usage = Usage(10, 5, 4, 3, cost=1.0, unpriced_calls=1, cache_write_tokens=2)
    with exporting(content=True) as (received, observer):
        b = Agent("B", description="Ends.", output_type=int)
        desk = Agent(
            "A",
            description="Desk.",
            instructions="Help.",
            tools=[look_up, fail, pay],
            handoffs=[handoff(b, input_type=Reason)],
        )
        asked = [call("look_up", city="Rome"), call("fail"), call("pay", euro=1)]
        transfers = [call("transfer_to_b", topic="a"), call("transfer_to_b", topic="b")]
        model = ScriptedModel(
            {
                "A": [replace(say("", *asked, usage=usage), stop_reason="tool_calls", id="resp_1"), transfers],
                "B": ["7"],
            },
            stream=True,
        )
        runner = Runner(desk, model=model, model_settings=settings, observers=[observer])
        async with runner.stream("Hi", run_id="r1", owner="ada") as run:
            assert [event async for event in run]
        assert (await runner.resume("r1", Approval(approved=True))).output == 7
        observer.flush()
        found = {name for span in received.spans for name in span.attributes}
        assert found <= ATTRIBUTES.keys()
        # These need a failed agent or a return to the caller.
        assert ATTRIBUTES.keys() - found <= {"baton.unfinished", "baton.handoff.reason"}
        assert set(received.metrics) <= METRICS.keys()
