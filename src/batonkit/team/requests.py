"""Model requests as they were sent, restored from the log of a run without running user code."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

from msgspec import Struct, convert

from ..agents.request_records import REQUEST_PARTS, content_hash
from ..log import Event, EventRef, RunStarted
from ..log.entries import HistoryEntry
from ..log.excerpts import from_excerpt
from ..log.fold import RunFold, history_from_log
from ..log.history import History
from ..log.reads import LogReads, ReadBefore
from ..log.views import rewrite
from ..messages import AssistantMessage, Message, ToolMessage, ToolSpec
from ..models import ModelSettings, OutputSchema, PromptCaching

MessageForm: TypeAlias = Literal["same", "rewritten", "added"]
"""`same` as its author wrote it, `rewritten` for other agents, or `added` by a filter, middleware or tool."""


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
    messages: tuple[Message, ...]
    """The messages, without those of earlier runs of the thread that have been deleted."""
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
    lacks_earlier_runs: bool = False
    """True if earlier runs of the thread have been deleted; the request may have had their messages."""


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
    logs = list(earlier)
    before: list[HistoryEntry] = []
    for log in logs:
        before = history_from_log(log, before)
    reads = LogReads(RunFold(History(before)))
    reader = _RequestReader(reads, is_whole=_is_whole([*logs, events]))
    found: dict[str, RecordedRequest] = {}
    for read in reads.read(events):
        reader.contents.update(read.record.contents)
        if keys is None or read.response.key in keys:
            found[read.response.key] = reader.restore(read)
    return found


def _is_whole(logs: Iterable[Sequence[Event]]) -> bool:
    """Return whether these are all runs of a thread up to the last of them."""
    previous = ""
    for log in logs:
        started = next(event for event in log if isinstance(event, RunStarted))
        if started.previous_run_id != previous:
            return False
        previous = started.run_id
    return True


class _RequestReader:
    def __init__(self, reads: LogReads, *, is_whole: bool) -> None:
        self._is_whole = is_whole
        self.contents: dict[str, Any] = {}
        self._reads = reads
        self._sources: dict[str, MessageSource] = {}
        """The sources of messages by the hash of their content."""
        self._hashes: dict[int, tuple[Message, str]] = {}
        """The hashes of messages, by identity."""

    def restore(self, read: ReadBefore) -> RecordedRequest:
        response = read.response
        messages = self._messages(read)
        self._find_sources(read.history)
        hashes = [self._hash(message) for message in messages]
        parts = self.contents.get(read.record.parts, {})
        given = {part: self.contents.get(parts.get(part)) for part in REQUEST_PARTS}
        schema = given["output_schema"]
        cache = given["prompt_cache"]
        return RecordedRequest(
            response.key,
            response.agent,
            response.model,
            read.policy,
            messages,
            tuple([self._sources.get(name, _ADDED) for name in hashes]),
            blake2b("".join(hashes).encode(), digest_size=_DIGEST_BYTES).hexdigest(),
            instructions=given["instructions"] or "",
            tools=convert(given["tools"] or (), tuple[ToolSpec, ...]),
            settings=convert(given["settings"] or {}, ModelSettings),
            output_schema=None if schema is None else convert(schema, OutputSchema),
            prompt_cache=None if cache is None else convert(cache, PromptCaching),
            tool_choice=parts.get("tool_choice"),
            lacks_earlier_runs=not self._is_whole,
        )

    def _messages(self, read: ReadBefore) -> tuple[Message, ...]:
        recorded = read.record.messages
        if recorded is None:
            return tuple(read.messages)

        def find(position: int, form: object) -> Message | None:
            return read.messages[position] if position < len(read.messages) else None

        excerpt = [convert(self.contents[part], Message) if isinstance(part, str) else part for part in recorded]
        return tuple(from_excerpt(excerpt, find))

    def _hash(self, message: Message) -> str:
        known = self._hashes.get(id(message))
        if known is None:
            known = self._hashes[id(message)] = (message, content_hash(message))
        return known[1]

    def _find_sources(self, history: History) -> None:
        """Note the sources of what a history has gained since the last request."""
        seen = history.views.setdefault(_RequestReader, _Seen())
        for entry in history.entries[seen.entries :]:
            ref = entry.event or EventRef(history.run_id, entry.key)
            self._add_source(entry, ref)
        seen.entries = len(history.entries)
        for prefix in self._reads.prefixes[seen.prefixes :]:
            for entry in prefix.entries:
                self._add_source(entry, EventRef(history.run_id, prefix.key))
        seen.prefixes = len(self._reads.prefixes)

    def _add_source(self, entry: HistoryEntry, ref: EventRef) -> None:
        for message, form in _forms(entry):
            source = MessageSource(form, ref.run_id, ref.key, entry.author or "")
            self._sources.setdefault(self._hash(message), source)


class _Seen(Struct):
    """The part of a history whose sources are known."""

    entries: int = 0
    prefixes: int = 0


_ADDED = MessageSource("added")
_DIGEST_BYTES = 8


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
