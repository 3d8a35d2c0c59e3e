"""The cost of streaming an answer over A2A: the CPU time of the service, with runs kept in SQLite."""
