"""Handoff probes: the same small situations for Baton and other frameworks, each with a scripted model.

`python -m benchmarks.contract` runs them. Modules that run in a peer's environment import the standard library and the
peer only.
"""
