"""Live conversations: voice or text over one open connection, in which the agent that has the floor can change.

May import runner and everything below it. Must not import a provider's SDK before it is asked for, and must not have
a way of its own to carry out calls or transfers: those are `agents` and `flow`.
"""
