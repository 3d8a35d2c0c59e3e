"""Content that guardrails keep out of histories: the log has it, and no one else reads it.

An answer counts once its activation has finished, and the input of a run once the guardrails of every agent that reads
it have passed. So content that could not be checked is treated like content that was rejected.
"""

from collections.abc import Iterable, Sequence

from msgspec import UNSET, Struct
from msgspec.structs import replace

from ..messages import AssistantMessage, Message, ToolMessage
from . import keys
from .entries import EXIT_TOOL, FINISH_TOOL, WHOLE_MESSAGE, HistoryEntry
from .events import StepCompleted

_ENDING_TOOLS = (EXIT_TOOL, FINISH_TOOL)
_INPUT_VERDICT = f"{keys.GUARDRAIL}input:"
_OUTPUT_VERDICT = f"{keys.GUARDRAIL}output:"
_WITHHELD = "Withheld, because no output guardrail has let the answer pass."


class Unchecked(Struct):
    """Content of one history that guardrails have not let pass."""

    answers: set[str] = set()
    """The activations whose answers are checked and that have not finished."""
    input: dict[str, set[str]] = {}
    """The guardrails that have not let the input of the run pass, by activation."""

    def __bool__(self) -> bool:
        return bool(self.answers or self.input)

    def start(self, activation: str, inputs: Iterable[str], outputs: Iterable[str]) -> None:
        """Note the guardrails of an activation that begins."""
        if self.answers or self.input:
            self.finish(activation)
        if names := set(inputs):
            self.input[activation] = names
        if any(outputs):
            self.answers.add(activation)

    def finish(self, activation: str) -> None:
        """Note that an activation has finished, or is over."""
        self.answers.discard(activation)
        self.input.pop(activation, None)

    def note_verdict(self, event: StepCompleted) -> None:
        """Note the verdict of a guardrail on the input of an activation."""
        # The verdict on a message that was sent later has another key: that message is recorded with it.
        if not event.name.startswith(_INPUT_VERDICT) or event.key != keys.inside(event.origin.id, event.name):
            return
        name = event.name.removeprefix(_INPUT_VERDICT)
        activation = keys.first_attempt(event.origin.id)
        left = self.input.setdefault(activation, set())
        if event.result["passed"]:
            left.discard(name)
        else:
            left.add(name)
        if not left:
            del self.input[activation]

    def left_by(self, activation: str) -> list[str]:
        """Return the activations that are over, because one outside them goes on."""
        return [
            each for each in {*self.answers, *self.input} if each != activation and not keys.contains(each, activation)
        ]

    def forget(self, scope: str) -> None:
        """Forget the activations inside a part of the run that failed, and that was tolerated."""
        for each in [each for each in {*self.answers, *self.input} if keys.is_effect_of(scope, each)]:
            self.finish(each)

    def add(self, branch: "Unchecked") -> None:
        """Add what was not let pass in a branch."""
        self.answers |= branch.answers
        self.input |= branch.input


def has_passed(entry: HistoryEntry, unchecked: Unchecked) -> bool:
    """Return whether an entry is no input of the run that guardrails have not let pass."""
    return not unchecked.input or entry.origin is not None or entry.event is not None


def rejected_activation(event: StepCompleted) -> str:
    """Return the activation whose answer a step has rejected; "" if it is not such a verdict."""
    # A step of the application may have such a name too, but its key differs.
    if not event.name.startswith(_OUTPUT_VERDICT) or not keys.ends_with(event.key, event.name):
        return ""
    return "" if event.result["passed"] else keys.before(event.key, event.name)


def is_said_in(activation: str, key: str) -> bool:
    """Return whether a key is inside any attempt at an activation, not of middleware around it."""
    return keys.is_effect_of(activation, key) or keys.contains(keys.attempts(activation), key)


def withhold_answers(entries: Sequence[HistoryEntry], activation: str) -> list[HistoryEntry | None]:
    """Return the entries without the answers of an activation and of agents inside it.

    Text becomes None. A turn whose calls gave the answer keeps the calls and a result for each, but not what they said.
    """
    inside = [entry for entry in entries if is_said_in(activation, entry.key)]
    answering = frozenset(_answering_responses(inside))
    changed = {id(entry): _withhold(entry, answering) for entry in inside}
    return [changed.get(id(entry), entry) for entry in entries]


def _answering_responses(entries: Iterable[HistoryEntry]) -> Iterable[str]:
    """Yield the keys of the responses whose calls gave an answer."""
    for entry in entries:
        message = entry.message
        if type(message) is ToolMessage:
            ends = message.name in _ENDING_TOOLS and not message.is_error
            if entry.gives_answer or ends:
                yield keys.call_of(entry.key)[0]
        elif entry.is_answer and keys.ends_with(entry.key, keys.STOP):
            yield keys.parent(entry.key)


def _withhold(entry: HistoryEntry, answering: frozenset[str]) -> HistoryEntry | None:
    """Return what is left of an entry."""
    message = entry.message
    if type(message) is ToolMessage:
        if keys.call_of(entry.key)[0] not in answering:
            return entry
        return _with_message(entry, replace(message, content=_WITHHELD))
    if type(message) is AssistantMessage and message.tool_calls:
        if entry.key not in answering:
            return entry
        calls = [replace(each, arguments="{}") if each.name in _ENDING_TOOLS else each for each in message.tool_calls]
        return _with_message(entry, AssistantMessage(tool_calls=tuple(calls)))
    # The invalid answers before it, and their corrections, are gone as well.
    is_correction = entry.hidden == (WHOLE_MESSAGE,)
    return None if entry.is_answer or is_correction else entry


def _with_message(entry: HistoryEntry, message: Message) -> HistoryEntry:
    return replace(entry, message=message, rewritten=UNSET, rewritten_bare=UNSET)
