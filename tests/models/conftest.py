"""Skip the tests of LiteLLM where it is not installed."""

from importlib.util import find_spec

# LiteLLM requires an older version of `openai`, so it is not one of the test dependencies.
collect_ignore = [] if find_spec("litellm") is not None else ["test_litellm.py"]
