"""Numbers and addresses stay behind on the way to billing. The model is scripted: no network, no key.

python examples/handoffs/redaction.py
baton check examples/handoffs/redaction.py:desk
"""

from batonkit import Agent, Runner, handoff
from batonkit.handoffs.filters import compose, keep_last, redact
from batonkit.messages import text_of
from batonkit.testing import ScriptedModel, call


def customer(number: str) -> str:
    """Look a customer up."""
    return f"{number}: Ada Byron, ada@example.com, card 4111 1111 1111 1111" if number == "K-204" else "nobody"


# Filters apply from left to right. A call and its result are kept or left out together.
for_billing = compose(redact(also={"customer number": r"K-\d+"}), keep_last(2))

billing = Agent("Billing", description="Settles invoices.", instructions="Settle it.")
desk = Agent(
    "Desk",
    instructions="Look the customer up, then hand over.",
    tools=[customer],
    handoffs=[handoff(billing, input_filter=for_billing)],
)
model = ScriptedModel(
    {
        "Desk": [call("customer", number="K-203"), call("customer", number="K-204"), call("transfer_to_billing")],
        "Billing": ["The invoice is corrected."],
    }
)
runner = Runner(desk, model=model)


def main() -> None:
    print("scripted model: no language model is called")
    result = runner.run_sync("I am K-204, call me at +1 212 555 0147. My invoice is wrong.")
    print(f"{result.agent} reads:")
    read = [text_of(message.content) for message in model.requests[-1].messages]
    for text in read:
        print(f"  {text}")
    # Only the view is changed. The log still has everything.
    logged = str(result.events)
    for secret in ("K-204", "555 0147", "4111 1111 1111 1111", "ada@example.com"):
        assert secret in logged
        assert not any(secret in text for text in read)
    print("no number or address reached Billing; the log is whole")


if __name__ == "__main__":
    main()
