"""Descriptions of teams and of recorded runs, for the command line, the HTTP API and Studio.

Nothing here runs an agent: teams are described as compiled, and runs as their logs recorded them. May import runner and
the layers below.
"""
