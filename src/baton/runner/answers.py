"""Answers from outside, checked before anything is written."""

from collections.abc import Mapping
from time import time
from typing import Any, cast

from ..context import to_json_value
from ..errors import AnswerError, quote_names
from ..events import RUN_ORIGIN, Event, InterruptAnswered, InterruptRaised, RunResumed
from ..log import Log
from ..tools import parse_approval
from ..tools.once import parse_outcome_report


def resume_events(log: Log, *, answers: Any, values: Mapping[str, Any] | None = None) -> list[Event]:
    """What is written first when a run is resumed. Raises AnswerError if an answer is for no open question."""
    opening: list[Event] = [RunResumed(f"resumed{len(log.events)}", RUN_ORIGIN, time())]
    return opening + answer_events(log.open_questions(), answers, values)


def answer_events(
    open_questions: Mapping[str, InterruptRaised], answers: Any, values: Mapping[str, Any] | None = None
) -> list[InterruptAnswered]:
    """The answers as events. Raises AnswerError if one is for no open question, or is of the wrong form."""
    events: list[InterruptAnswered] = []
    if values and answers is None:
        raise AnswerError(f"values come to a run with an answer, and {quote_names([*values])} came with none")
    brought = {key: to_json_value(f"value `{key}`", value) for key, value in (values or {}).items()}
    for id, answer in _by_id(open_questions, answers).items():
        asked = open_questions[id]
        kind = _kind_of(asked)
        if kind == "approval":
            answer = parse_approval(answer)
        elif kind == "unknown_outcome":
            answer = parse_outcome_report(answer)
        plain = to_json_value(f"the answer to `{id}`", answer)
        if asked.schema is not None:
            _check_fit(id, plain, asked.schema)
        events.append(InterruptAnswered(f"{id}!", asked.origin, time(), id, plain, brought))
    return events


def _by_id(open_questions: Mapping[str, InterruptRaised], answers: Any) -> Mapping[str, Any]:
    if answers is None:
        return {}
    if isinstance(answers, Mapping):
        given = cast(Mapping[Any, Any], answers)
        unknown = [str(id) for id in given if id not in open_questions]
        if not unknown:
            return given
        # A dictionary may also be the answer itself, unless some of its keys show that it was meant otherwise.
        if len(unknown) < len(given) or any("/ask" in id for id in unknown) or len(open_questions) != 1:
            raise AnswerError(
                f"no open question is called {quote_names(unknown)}; open are: {quote_names([*open_questions])}"
            )
    if len(open_questions) != 1:
        raise AnswerError(
            f"a single answer needs exactly one open question, but open are: {quote_names([*open_questions])}; "
            "give a mapping from id to answer"
        )
    return {next(iter(open_questions)): answers}


def _kind_of(asked: InterruptRaised) -> Any:
    """What sort of question a tool's wrapper asks about a call; None if it is somebody's own."""
    if asked.tool_call is None or not isinstance(asked.payload, dict):
        return None
    return cast("dict[str, Any]", asked.payload).get("kind")  # pyright: ignore[reportUnknownMemberType]


def _check_fit(id: str, answer: Any, schema: dict[str, Any]) -> None:
    from jsonschema import Draft202012Validator

    problems: list[str] = []
    validator: Any = Draft202012Validator(schema)
    for problem in validator.iter_errors(answer):
        place = ".".join(str(step) for step in problem.absolute_path) or "the answer"
        problems.append(f"{place}: {problem.message}")
    if problems:
        raise AnswerError(f"the answer to `{id}` does not fit what was asked for: {'; '.join(problems[:5])}")
