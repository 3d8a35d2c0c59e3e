"""What tests of agents need: a model that plays a script, and a run as lines of text.

May import every room but cli, server and web. Must not import pytest: it works with any test runner.
"""

from .scripted import ScriptedModel
from .steps import Step, Stream, call, say, transfer_to
from .transcript import transcript
from .understudy import Understudy

__all__ = ["ScriptedModel", "Step", "Stream", "Understudy", "call", "say", "transcript", "transfer_to"]
