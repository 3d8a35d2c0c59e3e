"""The rules for a conversation that every provider enforces."""

from collections.abc import Sequence

from batonkit.messages import AssistantMessage, Content, Message, Text, ToolMessage


def objections(messages: Sequence[Message]) -> list[str]:
    """Return the reasons for which a strict provider would refuse this conversation; empty if it is valid."""
    found: list[str] = []
    ids: set[str] = set()
    waiting: list[str] = []
    for position, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            if not waiting or message.tool_call_id != waiting[0]:
                found.append(f"message {position} is the result of `{message.tool_call_id}`; expected were {waiting}")
            waiting = waiting[1:]
            continue
        if waiting:
            found.append(f"message {position} stands where the results of {waiting} should be")
            waiting = []
        if _is_empty(message):
            found.append(f"message {position} is empty")
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                if not call.id or call.id in ids:
                    found.append(f"message {position} has a second call with the id `{call.id}`")
                ids.add(call.id)
            waiting = [call.id for call in message.tool_calls]
    if waiting:
        found.append(f"the results of {waiting} are missing at the end")
    return found


def _is_empty(message: Message) -> bool:
    has_calls = isinstance(message, AssistantMessage) and bool(message.tool_calls or message.reasoning)
    return not has_calls and not _has_content(message.content)


def _has_content(content: Content) -> bool:
    if isinstance(content, str):
        return bool(content)
    return any(not isinstance(part, Text) or part.text for part in content)
