"""Stored runs: the public list of them, how they are opened, driven, recovered and written."""
