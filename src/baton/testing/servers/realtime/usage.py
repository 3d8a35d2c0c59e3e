"""How many tokens a response has used, by rule where the script does not say."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ....messages import Usage
from .conversation import ServedItem

_CHARACTERS_OF_A_TOKEN = 4
_HEARD_MS_OF_A_TOKEN = 100
_SPOKEN_MS_OF_A_TOKEN = 50


def counted(items: Sequence[ServedItem], output: Sequence[ServedItem], said: Usage | None) -> dict[str, Any]:
    """The `usage` of a response; `said` is what the script says it has used."""
    own = {item.id for item in output}
    before = [item for item in items if item.id not in own]
    heard = sum(int(item.audio_ms) for item in before) // _HEARD_MS_OF_A_TOKEN
    spoken = sum(int(item.audio_ms) for item in output) // _SPOKEN_MS_OF_A_TOKEN
    usage = said or Usage(heard + _text_tokens(before), spoken + _text_tokens(output))
    cached = usage.cached_tokens
    heard, spoken = min(heard, usage.input_tokens), min(spoken, usage.output_tokens)
    return {
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "input_token_details": {
            "text_tokens": usage.input_tokens - heard,
            "audio_tokens": heard,
            "image_tokens": 0,
            "cached_tokens": cached,
            "cached_tokens_details": {"text_tokens": cached, "audio_tokens": 0, "image_tokens": 0},
        },
        "output_token_details": {"text_tokens": usage.output_tokens - spoken, "audio_tokens": spoken},
    }


def _text_tokens(items: Sequence[ServedItem]) -> int:
    return sum(len(msgspec.json.encode(item.wire)) for item in items) // _CHARACTERS_OF_A_TOKEN
