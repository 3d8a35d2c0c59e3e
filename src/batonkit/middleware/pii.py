"""`RedactPII`: personal data stays out of what the model reads."""

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from .._checks import check_arguments
from ..agents.middleware import Middleware, NextModelCall
from ..context import RunContext
from ..handoffs.redaction import PII_PATTERNS, Pattern, Redactor, find_patterns
from ..messages import AssistantMessage, Message, Text, ToolCall
from ..models import ModelRequest, ModelResponse

_REMOVED = "[{name} removed]"


class RedactPII(Middleware[Any]):
    """Replaces personal data in the messages that the model reads.

    Built in are `email`, `phone`, `card` (payment cards that pass the Luhn check), `iban` (with a valid checksum), `ip`
    (IPv4 and IPv6 addresses) and `ssn`; `batonkit.handoffs.redaction` describes them. No pattern finds everything. The
    texts of messages, data, arguments and results are searched; instructions, the contents of images, sounds and files
    and their URLs are not. The log and the result of the run keep everything.

    With `restore`, each value has a placeholder of its own, such as `[email 1]`, and the placeholders in the response
    are replaced with the values: tools receive real arguments, and the user reads real addresses.

    Args:
        patterns: The names of built-in patterns to use, or regular expressions by name to use instead of them.
        also: Regular expressions by name to use in addition.
        restore: Whether placeholders in the response are replaced with the values. Deltas are then withheld until the
            response is complete.

    Raises:
        SetupError: There is no such pattern, or one is not a regular expression.
    """

    @check_arguments
    def __init__(
        self,
        patterns: Mapping[str, Pattern] | Iterable[str] | None = None,
        *,
        also: Mapping[str, Pattern] | None = None,
        restore: bool = False,
    ) -> None:
        find = partial(find_patterns, owner="RedactPII", built_in=PII_PATTERNS)
        self._finders = {**find(patterns), **find(also or {})}
        self._restore = restore
        self.holds_deltas = restore

    async def model_call(self, ctx: RunContext[Any], request: ModelRequest, next: NextModelCall) -> ModelResponse:
        """Redact the messages, call the model, and restore what it wrote if that was asked for."""
        placeholders = _Placeholders() if self._restore else None
        redactor = Redactor(self._finders, placeholders or _REMOVED, keeps_reasoning=True)
        messages = [redactor.redact_message(message) for message in request.messages]
        response = await next(replace(request, messages=cast("list[Message]", messages)))
        if placeholders is None or not placeholders.values or response.message is None:
            return response
        return replace(response, message=placeholders.restore(response.message))


class _Placeholders:
    """Numbered placeholders; the same value always has the same one."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        """The values by placeholder."""
        self._known: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def __call__(self, name: str, value: str) -> str:
        known = self._known.get(value)
        if known is None:
            self._counts[name] = number = self._counts.get(name, 0) + 1
            known = self._known[value] = f"[{name} {number}]"
            self.values[known] = value
        return known

    def restore(self, message: AssistantMessage) -> AssistantMessage:
        """Replace the placeholders in a response."""
        pattern = re.compile("|".join(map(re.escape, self.values)))

        def restored(text: str) -> str:
            return pattern.sub(lambda match: self.values[match.group()], text)

        def restored_call(call: ToolCall) -> ToolCall:
            # Inside JSON, a value with quotes or backslashes must be escaped.
            arguments = pattern.sub(
                lambda match: msgspec.json.encode(self.values[match.group()]).decode()[1:-1], call.arguments
            )
            return replace(call, arguments=arguments)

        content = message.content
        if isinstance(content, str):
            content = restored(content)
        else:
            content = tuple(Text(restored(part.text)) if isinstance(part, Text) else part for part in content)
        return replace(message, content=content, tool_calls=tuple(map(restored_call, message.tool_calls)))
