"""What a run did, as a tree of OpenTelemetry spans. The model is scripted: no network, no key.

python examples/production/tracing.py
baton check examples/production/tracing.py:desk
"""

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from batonkit import Agent, Runner, tool
from batonkit.otel import OTelObserver
from batonkit.testing import call, say, scripted_or_real

# A program of yours would send spans to a receiver: OTelObserver.to("http://localhost:4318")
kept = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))


@tool
async def find_order(number: str) -> str:
    """Find an order."""
    return f"{number}: delivered, 40 EUR"


refunds = Agent("Refunds", description="Pays money back.", instructions="Settle the refund.")
billing = Agent("Billing", description="Explains invoices.", instructions="Explain the invoice.")
desk = Agent("Desk", instructions="Find the order, then hand over.", tools=[find_order], handoffs=[refunds, billing])
model = scripted_or_real(
    {
        "Desk": [
            say("Let me see.", call("find_order", number="A-17")),
            [call("transfer_to_refunds"), call("transfer_to_billing")],
        ],
        "Refunds": ["40 EUR are on their way."],
    }
)
runner = Runner(desk, model=model, observers=[OTelObserver(provider)])


def show(parent: ReadableSpan | None, indent: str = "") -> None:
    """Print the spans below this one."""
    spans = sorted(kept.get_finished_spans(), key=lambda span: (span.start_time or 0, -(span.end_time or 0)))
    for span in spans:
        if span.parent == (parent.context if parent else None):
            requested = (span.attributes or {}).get("baton.handoff.requested")
            print(f"{indent}{span.name}{f', requested: {requested}' if requested else ''}")
            show(span, indent + "  ")


if __name__ == "__main__":
    print(model.notice)
    result = runner.run_sync("I want my money back for A-17.")
    show(None)
    print(f"{result.agent}: {result.output}")
