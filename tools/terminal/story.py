"""The session that is recorded for the README: what the user types, and what the model says, as in `baton demo`."""

from batonkit.testing import call

CHAT = "baton chat desk:runner --thread lamp"
QUESTION = "My lamp arrived broken: order A-17, 80 EUR. I want my money back!"
ANSWER = "I am sorry about the lamp. Your 80 EUR are on their way back to you."
STEPS = [call("transfer_to_refunds"), call("refund", order="A-17", euros=80), ANSWER]
"""The responses of the model."""
