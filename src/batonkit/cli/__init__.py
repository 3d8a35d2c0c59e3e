"""The `baton` command line.

May import every package. It starts runs and shows them; it must not contain logic of its own about runs.
"""
