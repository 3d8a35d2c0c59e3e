"""Messages and their parts, from the protocol's form to ours and back.

The run's values as the other side's state: a snapshot at the beginning, then changes.
"""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable, Mapping
from typing import Any, cast

import ag_ui.core as agui

from ...events import ValueChanges
from ...messages import (
    AssistantMessage,
    Audio,
    Content,
    File,
    Image,
    Message,
    Part,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
    media_of,
    text_of,
)
from ..http.errors import ServingError

_MEDIA = {"image": Image, "audio": Audio}


def as_ours(messages: Iterable[Any]) -> list[Message]:
    """The conversation. Instructions of the other side are left out, for agents have their own; so is what it shows."""
    names: dict[str, str] = {}
    ours: list[Message] = []
    for message in messages:
        if isinstance(message, agui.UserMessage):
            ours.append(UserMessage(content_of(message.content)))
        elif isinstance(message, agui.AssistantMessage):
            calls = tuple([ToolCall(c.id, c.function.name, c.function.arguments) for c in message.tool_calls or ()])
            names.update({call.id: call.name for call in calls})
            ours.append(AssistantMessage(message.content or "", calls))
        elif isinstance(message, agui.ToolMessage):
            content = content_of(message.content)
            name = names.get(message.tool_call_id, "")
            ours.append(ToolMessage(message.tool_call_id, name, content, message.error is not None))
    return ours


def new_in(messages: list[Message]) -> list[Message]:
    """What was said last by the user: all after the last message of anybody else."""
    start = len(messages)
    while start and isinstance(messages[start - 1], UserMessage):
        start -= 1
    return messages[start:]


def content_of(content: Any) -> Content:
    """Text or parts of the protocol as ours."""
    return content if isinstance(content, str) else tuple([_part_of(part) for part in content])


def _part_of(part: Any) -> Part:
    if isinstance(part, agui.TextPart):
        return Text(part.text)
    kind: Any = _MEDIA.get(part.type, File)
    source = part.source
    media_type = {"media_type": source.mime_type} if getattr(source, "mime_type", None) else {}
    if isinstance(source, agui.UrlSource):
        return kind(url=source.value, **media_type)
    if isinstance(source, agui.DataSource):
        try:
            return kind(data=b64decode(source.value, validate=True), **media_type)
        except (NotBase64, ValueError):
            raise ServingError(422, "invalid", f"the data of an {part.type} part is not base64")
    raise ServingError(
        422, "invalid", f"an {part.type} part refers to a file that is not here; send its url or its data"
    )


def as_theirs(content: Content) -> Any:
    """Content of ours as the protocol has it: text if it is only that."""
    if isinstance(content, str) or not media_of(content):
        return text_of(content)
    parts: list[Any] = []
    for part in content:
        if isinstance(part, Image | Audio | File):
            parts.append(_media(part))
        else:
            parts.append(agui.TextPart(type="text", text=text_of((part,))))
    return parts


def _media(part: Image | Audio | File) -> Any:
    source: Any
    if part.url is not None:
        source = agui.UrlSource(type="url", value=part.url, mime_type=part.media_type)
    else:
        data = b64encode(part.data or b"").decode()
        source = agui.DataSource(type="data", value=data, mime_type=part.media_type)
    if isinstance(part, Image):
        return agui.ImagePart(type="image", source=source)
    if isinstance(part, Audio):
        return agui.AudioPart(type="audio", source=source)
    return agui.DocumentPart(type="document", source=source)


HIDDEN = ("baton.", "agui.")
"""What keys begin with that are not for the other side: neither shown to it nor taken from it."""


class StateMirror:
    """The values as far as the other side sees them."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def begin(self, values: Mapping[str, Any]) -> None:
        """Take in what a run began with."""
        self._values.update({key: value for key, value in values.items() if not key.startswith(HIDDEN)})

    def shown(self) -> dict[str, Any]:
        """All of it."""
        return dict(self._values)

    def change(self, changes: ValueChanges | None) -> list[Any]:
        """Make changes; what they are as a JSON patch."""
        if changes is None:
            return []
        patch: list[Any] = []
        for key, value in changes.written.items():
            if not key.startswith(HIDDEN):
                self._values[key] = value
                patch.append({"op": "add", "path": _pointer(key), "value": value})
        for key in changes.removed:
            # A patch that removes what is not there is refused as a whole.
            if key in self._values:
                del self._values[key]
                patch.append({"op": "remove", "path": _pointer(key)})
        return patch


def values_in(state: Any) -> dict[str, Any]:
    """The state that a request brings, as values to begin a run with."""
    if state is None:
        return {}
    values = cast("dict[str, Any]", state) if isinstance(state, dict) else {HIDDEN[0]: state}
    if any(key.startswith(HIDDEN) for key in values):
        raise ServingError(
            422, "invalid", "`state` must be an object, with no key that begins with `baton.` or `agui.`"
        )
    return values


def _pointer(key: str) -> str:
    return "/" + key.replace("~", "~0").replace("/", "~1")
