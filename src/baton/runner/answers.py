"""Answers from outside, checked before anything is written."""

from collections.abc import Mapping
from time import time
from typing import Any, cast

from ..context import as_json_value
from ..errors import AnswerError, listed
from ..events import Answered, Asked
from ..tools import approval_of


def answers_as_events(open_questions: Mapping[str, Asked], answers: Any) -> list[Answered]:
    """The answers as events. Raises AnswerError if one is for no open question, or is of the wrong form."""
    events: list[Answered] = []
    for id, answer in _by_id(open_questions, answers).items():
        asked = open_questions[id]
        if asked.call is not None and _is_approval(asked.payload):
            answer = approval_of(answer)
        plain = as_json_value(f"the answer to `{id}`", answer)
        events.append(Answered(f"{id}!", asked.origin, time(), id, plain))
    return events


def _by_id(open_questions: Mapping[str, Asked], answers: Any) -> Mapping[str, Any]:
    if answers is None:
        return {}
    if isinstance(answers, Mapping):
        given = cast(Mapping[Any, Any], answers)
        unknown = [str(id) for id in given if id not in open_questions]
        if not unknown:
            return given
        # A dictionary may also be the answer itself, unless some of its keys show that it was meant otherwise.
        if len(unknown) < len(given) or any("/ask" in id for id in unknown) or len(open_questions) != 1:
            raise AnswerError(f"no open question is called {listed(unknown)}; open are: {listed([*open_questions])}")
    if len(open_questions) != 1:
        raise AnswerError(
            f"a single answer needs exactly one open question, but open are: {listed([*open_questions])}; "
            "give a mapping from id to answer"
        )
    return {next(iter(open_questions)): answers}


def _is_approval(payload: Any) -> bool:
    return isinstance(payload, dict) and cast(dict[str, Any], payload).get("kind") == "approval"
