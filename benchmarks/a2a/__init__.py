"""What it costs a service of A2A to stream an answer: the CPU time of its process, with runs kept in SQLite."""
