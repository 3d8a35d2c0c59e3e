"""The base class of the suites for models and realtime models."""

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar

import pytest

P = TypeVar("P")
M = TypeVar("M")


class Bench(ABC, Generic[P, M]):
    """A suite whose checks of a capability are skipped if the model lacks it."""

    pytestmark = [pytest.mark.asyncio]
    capabilities: ClassVar[frozenset[str]] = frozenset()
    """The capabilities that a model may lack; everything else is required."""
    cannot: ClassVar[frozenset[str]] = frozenset()
    """The capabilities that this model lacks."""

    def __init_subclass__(cls) -> None:
        unknown = cls.cannot - cls.capabilities
        if unknown:
            raise TypeError(f"{cls.__name__}.cannot has {sorted(unknown)}; it can have: {sorted(cls.capabilities)}")
        super().__init_subclass__()

    @abstractmethod
    def model(self, provider: P) -> M:
        """Create the model under test for this provider."""

    def needs(self, ability: str) -> None:
        """Skip the check if the model lacks a capability."""
        if ability in self.cannot:
            pytest.skip(f"{type(self).__name__} says that it cannot do: {ability}")


async def close_model(model: object) -> None:
    """Close a model that has connections to close."""
    close = getattr(model, "aclose", None)
    if close is not None:
        await close()
