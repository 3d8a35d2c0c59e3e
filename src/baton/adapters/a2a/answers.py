"""What a follow-up on a paused task answers, and to which of its open questions."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from a2a.types.a2a_pb2 import Part
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import MessageToDict

from ...errors import quote_names
from ...events import InterruptRaised
from .parts import plain_value

_YES = frozenset({"yes", "y", "true", "ok", "approve", "approved"})
_NO = frozenset({"no", "n", "false", "reject", "rejected", "deny", "denied"})


def answers_of(parts: Iterable[Part], questions: Mapping[str, InterruptRaised]) -> dict[str, Any]:
    """The answers by the ids of the questions: as data parts give them, or the text if only one is open.

    Files are no answer by themselves: with them, it is `{"text": …, "files": […]}`, each file as A2A has it in JSON.
    """
    answers: dict[str, Any] = {}
    texts: list[str] = []
    others: list[Any] = []
    files: list[Any] = []
    for part in parts:
        kind = part.WhichOneof("content")
        if kind == "text":
            texts.append(part.text)
        elif kind in ("raw", "url"):
            files.append(MessageToDict(part))
        elif kind == "data":
            given = plain_value(part.data)
            found = _by_id(given, questions)
            answers.update(found)
            if not found:
                others.append(given)
    if answers:
        return answers
    # Ids are settled now: if the task has gone on meanwhile, this must not answer a question that came later.
    id = _only(questions)
    if files:
        return {id: {"text": "\n".join(texts), "files": files, **({"data": others[0]} if others else {})}}
    if others:
        return {id: others[0]}
    return {id: _as_wanted("\n".join(texts), questions[id])}


def _by_id(given: Any, questions: Mapping[str, InterruptRaised]) -> dict[str, Any]:
    if not isinstance(given, dict):
        return {}
    facts = cast("dict[str, Any]", given)
    if "interruptId" in facts:
        id = str(facts["interruptId"])
        if id not in questions:
            raise InvalidParamsError(
                message=f"no open question is called `{id}`; open are: {quote_names([*questions])}"
            )
        return {id: facts.get("answer")}
    return facts if facts and all(id in questions for id in facts) else {}


def _only(questions: Mapping[str, InterruptRaised]) -> str:
    if len(questions) != 1:
        raise InvalidParamsError(
            message=f"open questions are: {quote_names([*questions])}; "
            'answer each with a data part {"interruptId": …, "answer": …}'
        )
    return next(iter(questions))


def _as_wanted(text: str, asked: InterruptRaised) -> Any:
    """Words as the answer that the question wants: a yes or a no, or JSON, where plain text would not do."""
    payload: Any = asked.payload
    kind = cast("dict[str, Any]", payload).get("kind") if isinstance(payload, dict) else None
    if kind == "approval" and text.strip().lower() in _YES | _NO:
        return text.strip().lower() in _YES
    wants_text = asked.schema is None or asked.schema.get("type") == "string"
    if kind != "approval" and wants_text:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
