"""`baton voice`: a live conversation with a team in the terminal, with files, or with a microphone and a speaker."""
