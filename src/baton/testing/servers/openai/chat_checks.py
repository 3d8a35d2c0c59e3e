"""What Chat Completions refuse although every field has the right form."""

from collections.abc import Sequence

from .chat_wire import UNSUPPORTED, Assistant, ChatMessage, ChatRequest, NamedTool, SchemaFormat, Tool
from .errors import empty_array, wrong
from .schemas import check_choice, check_length, check_name, check_range, check_schema, check_tools

_MOST_STOPS = 4
_LONGEST_ID = 40


def check_options(wire: ChatRequest) -> None:
    """Numbers within their bounds, and options that go together."""
    check_range("temperature", wire.temperature, 0, 2)
    check_range("top_p", wire.top_p, 0, 1)
    check_range("frequency_penalty", wire.frequency_penalty, -2, 2)
    check_range("presence_penalty", wire.presence_penalty, -2, 2)
    check_range("max_tokens", wire.max_tokens, 1)
    check_range("max_completion_tokens", wire.max_completion_tokens, 1)
    if wire.max_tokens is not None and wire.max_completion_tokens is not None:
        message = "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
        raise wrong(message, code="invalid_parameter_combination")
    if isinstance(wire.stop, list) and len(wire.stop) > _MOST_STOPS:
        message = (
            f"Invalid 'stop': array too long. Expected an array with maximum length {_MOST_STOPS}, "
            f"but got an array with length {len(wire.stop)} instead."
        )
        raise wrong(message, param="stop", code="array_above_max_length")
    if wire.stream_options is not None and not wire.stream:
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise wrong(message, param="stream_options")
    if wire.n not in (None, 1) or (wire.modalities is not None and wire.modalities != ["text"]):
        raise wrong("This test server gives one answer, in text: leave out 'n' and 'modalities'.", param="n")
    for name in UNSUPPORTED:
        if getattr(wire, name) not in (None, False):
            raise wrong(f"This test server does not support '{name}'.", param=name, code="unsupported_parameter")


def check_offer(wire: ChatRequest) -> None:
    """The tools, the choice among them, and the form of the answer."""
    functions = None if wire.tools is None else [tool.function for tool in wire.tools]
    tools = None if functions is None else [(each.name, each.parameters, each.strict) for each in functions]
    check_tools(tools, "tools[{}].function.name", "tools[{}].function.parameters")
    choice = wire.tool_choice
    named = choice.function.name if isinstance(choice, NamedTool) else None
    names = None if functions is None else [each.name for each in functions]
    check_choice(None if isinstance(choice, NamedTool) else choice, named, tools=names)
    if wire.parallel_tool_calls is not None and not wire.tools:
        message = "'parallel_tool_calls' is only allowed when 'tools' are specified."
        raise wrong(message, param="parallel_tool_calls")
    if isinstance(wire.response_format, SchemaFormat):
        wanted = wire.response_format.json_schema
        check_name(wanted.name, "response_format.json_schema.name")
        if wanted.schema is None:
            param = "response_format.json_schema.schema"
            raise wrong(f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")
        what = f"response_format '{wanted.name}'"
        check_schema(wanted.schema, what, param="response_format", is_strict=bool(wanted.strict))


def check_pairs(messages: Sequence[ChatMessage]) -> None:
    """Every call is followed at once by its one result, and no result stands alone."""
    if not messages:
        raise empty_array("messages")
    waiting: list[str] = []
    for index, message in enumerate(messages):
        if isinstance(message, Tool):
            if message.tool_call_id not in waiting:
                message_of = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
                raise wrong(f"Invalid parameter: {message_of}", param=f"messages.[{index}].role")
            waiting.remove(message.tool_call_id)
            continue
        _check_none(waiting)
        if isinstance(message, Assistant):
            waiting = [call.id for call in message.tool_calls or ()]
            for position, call in enumerate(message.tool_calls or ()):
                place = f"messages[{index}].tool_calls[{position}]"
                check_name(call.function.name, f"{place}.function.name")
                check_length(call.id, f"{place}.id", _LONGEST_ID)
    _check_none(waiting)


def _check_none(waiting: Sequence[str]) -> None:
    if waiting:
        rule = "An assistant message with 'tool_calls' must be followed by tool messages for each 'tool_call_id'."
        which = f"The following tool_call_ids did not have response messages: {', '.join(waiting)}"
        raise wrong(f"{rule} {which}", param="messages")
