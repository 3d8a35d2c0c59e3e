"""Questions of agents in a chat: how they are asked there, and what a message of the user answers."""

import json
from collections.abc import Sequence
from typing import Any
from unicodedata import normalize

from ...errors import AnswerError
from ...log.events import Interrupt, payload_fields
from ..http.questions import is_approval, question_text, to_json

WORDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "de": (("ja", "jawohl", "einverstanden"), ("nein", "ablehnen")),
    "en": (("yes", "y", "yep", "ok", "okay", "approve", "approved"), ("no", "n", "nope", "reject", "rejected")),
    "es": (("sí", "si", "vale", "de acuerdo"), ("no", "rechazar")),
    "fr": (("oui", "d'accord"), ("non", "refuser")),
    "it": (("sì", "si", "va bene"), ("no", "rifiuta")),
    "ja": (("はい",), ("いいえ",)),
    "pt": (("sim",), ("não", "nao")),
    "zh": (("是", "是的", "好", "好的", "可以", "同意"), ("否", "不", "不是", "不行", "不可以", "不同意")),
}
"""The words that approve and reject, by language."""

_ELSEWHERE = "A person must decide this outside of this chat; the conversation continues afterwards."


class ChatAnswers:
    """The questions of one app, for users who chat in some languages."""

    def __init__(self, languages: Sequence[str]) -> None:
        self._words = [WORDS[language] for language in languages]

    def ask(self, interrupts: Sequence[Interrupt], *, in_chat: bool) -> str:
        """Return a text that says what is asked, and how to answer it."""
        if not in_chat:
            return "\n\n".join([*map(question_text, interrupts), _ELSEWHERE])
        # One at a time: a message is one answer.
        asked = interrupts[0]
        return f"{question_text(asked)}{self._how_to_answer(asked)}"

    def parse(self, interrupt: Interrupt, text: str) -> Any:
        """Return the answer that a message of the user gives.

        Raises:
            AnswerError: The message is ambiguous.
        """
        schema = interrupt.schema or {}
        if is_approval(interrupt) or schema.get("type") == "boolean":
            return self._parse_decision(text)
        # Text is an answer as it is, unless the question has a form for it.
        if schema.get("type", "string") == "string" and not _needs_report(interrupt):
            return text
        try:
            return json.loads(text)
        except ValueError:
            raise AnswerError("That is not JSON.") from None

    def _parse_decision(self, text: str) -> bool:
        said = normalize("NFKC", text).casefold().strip(" \t\r\n.,!。、")
        for yes, no in self._words:
            if said in yes or said in no:
                return said in yes
        raise AnswerError("That answer is not clear.")

    def _how_to_answer(self, interrupt: Interrupt) -> str:
        schema = interrupt.schema or {}
        if is_approval(interrupt) or schema.get("type") == "boolean":
            return "\n\nAnswer " + ", or ".join([f"“{yes[0]}” or “{no[0]}”" for yes, no in self._words]) + "."
        if interrupt.schema is not None and schema.get("type") != "string":
            return f"\n\nAnswer with JSON that matches this schema: {to_json(interrupt.schema)}"
        return "\n\nAnswer with JSON." if _needs_report(interrupt) else ""


def _needs_report(interrupt: Interrupt) -> bool:
    """Return whether the answer reports the outcome of a call that a crash left unknown."""
    return interrupt.tool_call is not None and payload_fields(interrupt.payload).get("kind") == "unknown_outcome"
