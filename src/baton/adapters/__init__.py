"""Ways in and out for other people's standards: what a run does, told in the words that other systems read.

May import runner and what is below it; a standard's library is imported when its adapter is made. Must not drive runs
in a way of its own: an adapter reads a log, or calls a runner as anybody would.
"""

from .otel import OTel

__all__ = ["OTel"]
