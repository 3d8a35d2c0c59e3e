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

from .models import ABILITIES, ModelConformance, ModelProvider  # noqa: E402
from .realtime import REALTIME_ABILITIES, RealtimeConformance, RealtimeProvider  # noqa: E402
from .stores import SHARED_STORE_CHECKS, STORE_CHECKS, StoreCheck, name_of  # noqa: E402

__all__ = [
    "ABILITIES",
    "REALTIME_ABILITIES",
    "SHARED_STORE_CHECKS",
    "STORE_CHECKS",
    "ModelConformance",
    "ModelProvider",
    "RealtimeConformance",
    "RealtimeProvider",
    "StoreCheck",
    "name_of",
]
