"""Threads: consecutive runs of one conversation, and the messages that wait for them."""
