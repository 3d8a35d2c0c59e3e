"""The command `baton`: run, chat, check, graph, demo and model, for people at a terminal.

May import every room but server and web. Must not decide anything about a run: it starts one and shows what happens.
"""
