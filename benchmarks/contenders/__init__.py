"""The two contenders of every run: the bare loop that sets the scale, and Baton."""
