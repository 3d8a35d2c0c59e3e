"""How often a model has failed to mend its calls."""

from ..errors import BatonError


class CorrectionCounter:
    """Counts corrections that failed: turns that are faulty right after a faulty one."""

    __slots__ = ("_allowed", "_failed", "_was_faulty")

    def __init__(self, allowed: int) -> None:
        self._allowed = allowed
        self.start_over()

    def note(self, fault: BatonError, *, is_over: bool = False) -> None:
        """A turn was faulty. Raises the fault if too many corrections have failed, unless the agent is done anyway."""
        if self._was_faulty:
            self._failed += 1
        self._was_faulty = True
        if self._failed >= self._allowed and not is_over:
            raise fault

    def passed(self) -> None:
        """A turn was in order."""
        self._was_faulty = False

    def start_over(self) -> None:
        """Somebody else has spoken: what was wrong before does not count."""
        self._was_faulty = False
        self._failed = 0
