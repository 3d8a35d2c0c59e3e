"""Conformance suites for models, realtime models, stores and engines, run by their authors with pytest.

May import every package but cli, and pytest. Knows no provider: the author of a model supplies what is behind it.
"""

from ...errors import MissingExtraError

try:
    import pytest
except ImportError as missing:
    raise MissingExtraError("batonkit.testing.conformance", "", missing, packages="pytest-asyncio") from missing

# Failing checks then show what they compared, as in the author's own tests.
pytest.register_assert_rewrite(
    *(f"{__name__}.{module}" for module in ("model_bench", "model_checks", "realtime_checks"))
)

from .engine_checks import ENGINE_CHECKS, EngineCheck, EnginePlace  # noqa: E402
from .model_checks import MODEL_CAPABILITIES, ModelConformance, ModelProvider  # noqa: E402
from .realtime_checks import REALTIME_CAPABILITIES, RealtimeConformance, RealtimeProvider  # noqa: E402
from .store_suite import (  # noqa: E402
    CHANNEL_CHECKS,
    INBOX_CHECKS,
    NOTES_CHECKS,
    RETENTION_CHECKS,
    SHARED_INBOX_CHECKS,
    SHARED_STORE_CHECKS,
    STORE_CHECKS,
    StoreCheck,
    SupportsRunLocks,
    check_name,
)

__all__ = [
    "CHANNEL_CHECKS",
    "ENGINE_CHECKS",
    "INBOX_CHECKS",
    "MODEL_CAPABILITIES",
    "NOTES_CHECKS",
    "REALTIME_CAPABILITIES",
    "RETENTION_CHECKS",
    "SHARED_INBOX_CHECKS",
    "SHARED_STORE_CHECKS",
    "STORE_CHECKS",
    "EngineCheck",
    "EnginePlace",
    "ModelConformance",
    "ModelProvider",
    "RealtimeConformance",
    "RealtimeProvider",
    "StoreCheck",
    "SupportsRunLocks",
    "check_name",
]
