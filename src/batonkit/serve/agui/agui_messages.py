"""Conversion of messages and of the shared state between AG-UI and Baton."""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import ag_ui.core as agui

from ... import messages as core
from ...context.values import THREAD_PREFIX
from ...log import Event, RunStarted, UserMessageAdded, ValueChanges
from ..http.http_errors import ServingError

_MEDIA = {"image": core.Image, "audio": core.Audio}


def from_agui_messages(messages: Iterable[Any]) -> list[core.Message]:
    """Convert AG-UI messages. System, developer, reasoning and activity messages are dropped."""
    names: dict[str, str] = {}
    converted: list[core.Message] = []
    for message in messages:
        if isinstance(message, agui.UserMessage):
            converted.append(core.UserMessage(from_agui_content(message.content)))
        elif isinstance(message, agui.AssistantMessage):
            called = [(call.id, call.function) for call in message.tool_calls or ()]
            calls = tuple([core.ToolCall(id, function.name, function.arguments) for id, function in called])
            names.update({call.id: call.name for call in calls})
            converted.append(core.AssistantMessage(message.content or "", calls))
        elif isinstance(message, agui.ToolMessage):
            content = from_agui_content(message.content)
            name = names.get(message.tool_call_id, "")
            converted.append(core.ToolMessage(message.tool_call_id, name, content, message.error is not None))
    return converted


def new_user_messages(messages: list[core.Message]) -> list[core.Message]:
    """Return the user messages after the last other message."""
    start = len(messages)
    while start and isinstance(messages[start - 1], core.UserMessage):
        start -= 1
    return messages[start:]


def sent_messages(events: Sequence[Event]) -> list[core.Message]:
    """Return what the user has sent to a run."""
    sent: list[core.Message] = []
    for event in events:
        if isinstance(event, RunStarted):
            sent += event.input
        elif isinstance(event, UserMessageAdded):
            sent.append(event.message)
    return sent


def unread_messages(messages: list[core.Message], received: Sequence[core.Message]) -> list[core.Message]:
    """Leave out messages that were received last, such as those of a failed run.

    The last message stays: the user may say the same again.
    """
    for count in range(min(len(messages) - 1, len(received)), 0, -1):
        if [*received[-count:]] == messages[:count]:
            return messages[count:]
    return messages


def from_agui_content(content: Any) -> core.Content:
    """Convert the content of an AG-UI message.

    Raises:
        ServingError: A part is neither text nor has a url or data.
    """
    return content if isinstance(content, str) else tuple([_from_agui_part(part) for part in content])


def _from_agui_part(part: Any) -> core.Part:
    if isinstance(part, agui.TextPart):
        return core.Text(part.text)
    kind: Any = _MEDIA.get(part.type, core.File)
    source = part.source
    media_type = {"media_type": source.mime_type} if getattr(source, "mime_type", None) else {}
    if isinstance(source, agui.UrlSource):
        return kind(url=source.value, **media_type)
    if isinstance(source, agui.DataSource):
        try:
            return kind(data=b64decode(source.value, validate=True), **media_type)
        except (NotBase64, ValueError):
            raise ServingError(422, "invalid", f"the data of {part.type} parts must be base64")
    raise ServingError(422, "invalid", f"{part.type} parts must have a url or data; file ids are not supported")


def to_agui_content(content: core.Content) -> Any:
    """Convert content to AG-UI: plain text, or parts if there is media."""
    if isinstance(content, str) or not core.media_of(content):
        return core.text_of(content)
    return [_to_agui_part(part) for part in content]


def _to_agui_part(part: core.Part) -> Any:
    if not isinstance(part, core.Image | core.Audio | core.File):
        return agui.TextPart(type="text", text=core.text_of((part,)))
    source: Any
    if part.url is not None:
        source = agui.UrlSource(type="url", value=part.url, mime_type=part.media_type)
    else:
        data = b64encode(part.data or b"").decode()
        source = agui.DataSource(type="data", value=data, mime_type=part.media_type)
    if isinstance(part, core.Image):
        return agui.ImagePart(type="image", source=source)
    if isinstance(part, core.Audio):
        return agui.AudioPart(type="audio", source=source)
    return agui.DocumentPart(type="document", source=source)


HIDDEN = ("baton.", "agui.", THREAD_PREFIX)
"""Prefixes of keys that are neither sent to the client nor accepted from it."""


class StateMirror:
    """The part of a run's values that the client sees as its state."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def load(self, values: Mapping[str, Any]) -> None:
        """Add the initial values of a run."""
        self._values.update({key: value for key, value in values.items() if not key.startswith(HIDDEN)})

    def snapshot(self) -> dict[str, Any]:
        """Return a copy of the state."""
        return dict(self._values)

    def apply(self, changes: ValueChanges | None) -> list[Any]:
        """Apply changes and return them as a JSON patch."""
        if changes is None:
            return []
        patch: list[Any] = []
        for key, value in changes.written.items():
            if not key.startswith(HIDDEN):
                self._values[key] = value
                patch.append({"op": "add", "path": _pointer(key), "value": value})
        for key in changes.removed:
            # Clients reject a patch that removes a missing key.
            if key in self._values:
                del self._values[key]
                patch.append({"op": "remove", "path": _pointer(key)})
        return patch


def state_values(state: Any) -> dict[str, Any]:
    """Return the state of a request as initial values of a run.

    Raises:
        ServingError: The state is not an object, or has a reserved key.
    """
    if state is None:
        return {}
    values = cast("dict[str, Any]", state) if isinstance(state, dict) else {HIDDEN[0]: state}
    if any(key.startswith(HIDDEN) for key in values):
        message = "`state` must be an object without keys that begin with `baton.`, `agui.` or `thread:`"
        raise ServingError(422, "invalid", message)
    return values


def _pointer(key: str) -> str:
    return "/" + key.replace("~", "~0").replace("/", "~1")
