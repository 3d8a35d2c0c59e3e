"""The cost of a live conversation: a piece of audio, a transfer, and fifty conversations at once."""
