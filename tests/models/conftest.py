"""What is only tested where it can be."""

from importlib.util import find_spec

# LiteLLM holds the `openai` package back to an older version, so the tests do not install it by themselves.
collect_ignore = [] if find_spec("litellm") is not None else ["test_litellm.py"]
