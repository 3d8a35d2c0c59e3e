"""Model requests as they were sent, restored from the log of a run without running user code."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct, convert

from ..agents.request_records import REQUEST_PARTS, MessagesDigest, content_hash
from ..context import HistoryEntry
from ..context.history import to_entries
from ..events import AgentResponded, ControlTransferred, Event, Origin, ToolReturned, keys, types
from ..messages import AssistantMessage, Message, ToolMessage, ToolSpec
from ..models import ModelSettings, OutputSchema, PromptCaching
from .history import rewrite
from .log_history import NO_RESULT
from .tasks import result_message

MessageForm: TypeAlias = Literal["same", "rewritten", "added"]
"""`same` as its author wrote it, `rewritten` for other agents, or `added` by a handoff, filter, middleware or tool."""


class MessageSource(Struct, frozen=True):
    """The event that a message of a request comes from."""

    form: MessageForm
    """The form in which the agent read it."""
    run_id: str = ""
    """The run that has the event; "" if no event has the message."""
    key: str = ""
    """The key of the event; "" if no event has the message."""
    agent: str = ""
    """The agent that wrote it; "" for user input."""


class RecordedRequest(Struct, frozen=True):
    """A model request, as the model received it."""

    key: str
    """The key of the response."""
    agent: str
    """The agent."""
    model: str
    """The model that responded."""
    policy: str
    """The history policy that the messages were selected with, `function` or `filter`."""
    messages: tuple[Message | None, ...]
    """The messages; None for those of earlier runs of the thread that have been deleted."""
    sources: tuple[MessageSource, ...]
    """The source of each message."""
    digest: str
    """A hash over all messages: two requests with the same messages have the same digest."""
    instructions: str = ""
    """The system prompt."""
    tools: tuple[ToolSpec, ...] = ()
    """The tools."""
    settings: ModelSettings = ModelSettings()
    """The settings; values of headers, query parameters and extra fields are not recorded."""
    output_schema: OutputSchema | None = None
    """The schema of the answer."""
    prompt_cache: PromptCaching | None = None
    """The prompt caching that was asked for."""
    tool_choice: str | None = None
    """The tool use that was required."""


def read_requests(
    events: Sequence[Event], earlier: Iterable[Sequence[Event]] = (), *, keys: Collection[str] | None = None
) -> dict[str, RecordedRequest]:
    """Return the model requests of a run by the keys of their responses.

    Responses without a recorded request, as in runs without a store, are left out.

    Args:
        events: The log of the run.
        earlier: The logs of the earlier runs of its thread.
        keys: The keys of the responses whose requests are wanted; all by default. Of a long run, a few are much
            cheaper than all.
    """
    reader = _RequestReader()
    for log in earlier:
        for response, record in reader.responses(log):
            reader.note(response.key, record)
    found: dict[str, RecordedRequest] = {}
    for response, record in reader.responses(events):
        reader.note(response.key, record)
        if keys is None or response.key in keys:
            found[response.key] = reader.read(response, record)
    return found


_MISSING = MessageSource("same")
_UNKNOWN = ""
"""The name of a message of a request that is not in the log any more."""


class _Noted(Struct, frozen=True):
    """A request, by the names of its messages and of its other parts."""

    names: list[str]
    digest: str
    parts: str


_NOT_NOTED = _Noted([], "", "")


class _RequestReader:
    def __init__(self) -> None:
        self._found: dict[str, tuple[Message, MessageSource]] = {}
        self._contents: dict[str, Any] = {}
        self._noted: dict[tuple[str, str], _Noted] = {}
        self._run_id = ""

    def responses(self, events: Sequence[Event]) -> Iterator[tuple[AgentResponded, types.RequestRecord]]:
        """Yield the responses of the next log that have a recorded request."""
        self._run_id = next((event.run_id for event in events if isinstance(event, types.RunStarted)), "")
        for source, entry in _logged_entries(events):
            for message, form in _forms(entry):
                place = MessageSource(form, source.run_id, source.key, source.agent)
                self._found.setdefault(content_hash(message), (message, place))
        for event in events:
            if isinstance(event, AgentResponded) and event.request is not None:
                yield event, event.request

    def note(self, key: str, record: types.RequestRecord) -> None:
        """Remember a request, which later ones refer to."""
        self._contents.update(record.contents)
        base = self._noted.get((record.base_run or self._run_id, record.base), _NOT_NOTED)
        names = [*base.names[: record.kept], *record.added]
        digest = MessagesDigest(names).text()
        if record.digest and _UNKNOWN not in names and digest != record.digest:
            # The run with the base has been deleted; another run may have got its id since.
            names = [*[_UNKNOWN] * record.kept, *record.added]
        self._noted[self._run_id, key] = _Noted(names, record.digest or digest, record.parts or base.parts)

    def read(self, response: AgentResponded, record: types.RequestRecord) -> RecordedRequest:
        key = response.key
        noted = self._noted[self._run_id, key]
        found, parts = [self._message(name) for name in noted.names], self._contents.get(noted.parts, {})
        given = {part: self._contents.get(parts.get(part)) for part in REQUEST_PARTS}
        schema, cache = given["output_schema"], given["prompt_cache"]
        return RecordedRequest(
            key,
            response.agent,
            response.model,
            record.policy,
            tuple([message for message, _ in found]),
            tuple([source for _, source in found]),
            noted.digest,
            instructions=given["instructions"] or "",
            tools=convert(given["tools"] or (), tuple[ToolSpec, ...]),
            settings=convert(given["settings"] or {}, ModelSettings),
            output_schema=None if schema is None else convert(schema, OutputSchema),
            prompt_cache=None if cache is None else convert(cache, PromptCaching),
            tool_choice=parts.get("tool_choice"),
        )

    def _message(self, name: str) -> tuple[Message | None, MessageSource]:
        if (found := self._found.get(name)) is not None:
            return found
        if name in self._contents:
            return convert(self._contents[name], Message), MessageSource("added")
        return None, _MISSING


def _logged_entries(events: Sequence[Event]) -> Iterator[tuple[MessageSource, HistoryEntry]]:  # noqa: C901
    """Yield the messages that the events of a log have, those of nested agents included."""
    results = {event.key: event for event in events if isinstance(event, ToolReturned)}
    followed = {event.origin.id: event.call_id for event in events if isinstance(event, ControlTransferred)}
    truncated = {event.response_key: event for event in events if isinstance(event, types.ResponseTruncated)}
    run_id = ""
    for event in events:
        source = MessageSource("same", run_id, event.key, event.agent)
        if isinstance(event, types.RunStarted):
            run_id = event.run_id
            for message in event.input:
                yield MessageSource("same", run_id, event.key), HistoryEntry(message)
            for summary in event.summaries:
                yield from ((MessageSource("same", run_id, event.key), entry) for entry in to_entries(summary.messages))
        elif isinstance(event, types.HistoryCompacted):
            yield from ((source, entry) for entry in to_entries(event.summary))
        elif isinstance(event, types.UserMessageAdded):
            yield MessageSource("same", run_id, event.key), HistoryEntry(event.message)
        elif isinstance(event, ToolReturned):
            yield source, HistoryEntry(event.message, event.origin)
        elif isinstance(event, types.TaskEnded):
            if (told := result_message(event)) is not None:
                yield source, HistoryEntry(told, Origin("", event.task.caller))
        elif isinstance(event, AgentResponded):
            calls = event.tool_calls
            refused = tuple(
                position
                for position in range(len(calls))
                if (result := results.get(keys.call(event.key, position))) is not None
                and (result.is_transfer_refused or result.is_task_call)
            )
            call_id = followed.get(event.origin.id)
            follows = tuple(
                position for position, call in enumerate(calls) if call_id is not None and call.id == call_id
            )
            yield source, HistoryEntry(event.message, event.origin, hidden=refused, followed=follows)
            if event.key in truncated:
                yield source, HistoryEntry(truncated[event.key].truncate(event.message), event.origin)
            for position, call in enumerate(calls):
                if keys.call(event.key, position) not in results:
                    yield source, HistoryEntry(ToolMessage(call.id, call.name, NO_RESULT, is_error=True), event.origin)


def _forms(entry: HistoryEntry) -> Iterator[tuple[Message, MessageForm]]:
    """Yield the forms in which agents can read a message."""
    shown = [entry.message, entry.for_others(hide_transfers=False), entry.for_others(hide_transfers=True)]
    for message in shown:
        if message is not None:
            yield message, "same"
    if isinstance(entry.message, ToolMessage):
        # With the policy `answers`, the author reads a final result as an answer of its own.
        yield AssistantMessage(entry.message.content), "same"
    for message in shown:
        if entry.author is not None and (told := rewrite(message, entry.author)) is not None:
            yield told, "rewritten"
