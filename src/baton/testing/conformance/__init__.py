"""What a model, live or not, or a store must do to be one: suites of tests, for its author to run with pytest.

May import every room but cli, and pytest. Must not know any provider: what is behind a model comes from its author.
"""

from ...errors import SetupError

try:
    import pytest
except ImportError as missing:
    raise SetupError("baton.testing.conformance needs pytest: pip install pytest pytest-asyncio") from missing

# A failing check then shows what it compared, as in the author's own tests.
pytest.register_assert_rewrite(*(f"{__name__}.{suite}" for suite in ("answers", "failures", "realtime", "requests")))

from .models import MODEL_CAPABILITIES, ModelConformance, ModelProvider  # noqa: E402
from .realtime import REALTIME_CAPABILITIES, RealtimeConformance, RealtimeProvider  # noqa: E402
from .stores import SHARED_STORE_CHECKS, STORE_CHECKS, StoreCheck, check_name  # noqa: E402

__all__ = [
    "MODEL_CAPABILITIES",
    "REALTIME_CAPABILITIES",
    "SHARED_STORE_CHECKS",
    "STORE_CHECKS",
    "ModelConformance",
    "ModelProvider",
    "RealtimeConformance",
    "RealtimeProvider",
    "StoreCheck",
    "check_name",
]
