"""Which calls were made in a live conversation: an id is good for one call, however often it comes."""

from collections.abc import Mapping

from ..messages import AssistantMessage, ToolCall


class CallLedger:
    """What each call id was used for."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[str, str]] = {}

    def remember(self, made: Mapping[str, tuple[str, str]]) -> None:
        """Take note of calls that are on record: the tool's name and the arguments, by id."""
        self._made.update(made)

    def sorted_out(self, message: AssistantMessage) -> tuple[AssistantMessage, list[ToolCall], list[ToolCall]]:
        """The message with those calls only that are new; those that were made before; those whose id means another."""
        fresh: list[ToolCall] = []
        repeated: list[ToolCall] = []
        altered: list[ToolCall] = []
        for call in message.tool_calls:
            this = (call.name, call.arguments)
            if call.id not in self._made:
                self._made[call.id] = this
                fresh.append(call)
            else:
                (repeated if self._made[call.id] == this else altered).append(call)
        if len(fresh) < len(message.tool_calls):
            message = AssistantMessage(message.content, tuple(fresh))
        return message, repeated, altered
