"""The text for coding assistants, made of the docs."""
