"""The `baton` command line.

May import every package but studio. It starts runs and shows them; it must not contain logic of its own about runs.
"""
