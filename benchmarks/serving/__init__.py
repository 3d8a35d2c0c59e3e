"""The cost of a run over HTTP: the CPU time of the server, beside a Starlette app that streams the same bytes."""
