"""What a request asks for: a new run of a thread, or that the thread's last run goes on with answers."""

import re
from collections.abc import Sequence
from typing import Any, cast

import ag_ui.core as agui
from msgspec import Struct
from pydantic import ValidationError

from ...errors import AnswerError, quote_names
from ...events import InterruptRaised
from ...messages import Message, ToolSpec, text_of
from ..http.problems import ServingError
from .endings import is_frontend_call
from .frontend import TOOLS
from .messages import as_ours, content_of, new_in
from .state import values_in

CONTEXT, PROPS = "agui.context", "agui.props"
"""The keys in a run's values under which a request's context and forwarded properties are kept."""

_ID = re.compile(r"[\x21-\x7e]{1,200}")
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_GIVEN_UP = "The user did not carry this call out."


class ResumeRequest(Struct, frozen=True):
    """How a run that waits is to go on. `gives_up` says that somebody will not answer a question of an agent's own."""

    answers: dict[str, Any]
    answered_calls: tuple[str, ...] = ()
    """The calls whose results came as messages."""
    gives_up: bool = False


def read_request(content: bytes) -> agui.RunAgentInput:
    """The request. Raises Problem if it is none."""
    try:
        request = agui.RunAgentInput.model_validate_json(content)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        if problems[0]["type"] == "json_invalid":
            raise ServingError(400, "malformed_json", "the body is not JSON")
        where = ".".join(str(step) for step in problems[0]["loc"])
        raise ServingError(422, "invalid", f"the body does not fit: `{where}`: {problems[0]['msg']}")
    for name, id in (("threadId", request.thread_id), ("runId", request.run_id)):
        if not _ID.fullmatch(id):
            raise ServingError(422, "invalid", f"`{name}` must be 1 to 200 visible ASCII characters")
    return request


def values_of(request: agui.RunAgentInput) -> dict[str, Any]:
    """What a new run begins with: the state, and what else the other side has to offer."""
    values = dict(values_in(request.state))
    if request.tools:
        values[TOOLS] = [_tool(tool) for tool in request.tools]
    if request.context:
        values[CONTEXT] = [{"description": each.description, "value": each.value} for each in request.context]
    if request.forwarded_props:
        values[PROPS] = request.forwarded_props
    return values


def said_in(request: agui.RunAgentInput, *, is_known: bool) -> list[Message]:
    """What a new run is told: what is new, if the thread is known here; everything, if it began elsewhere."""
    messages = as_ours(request.messages)
    return new_in(messages) if is_known else messages


def resumption_of(request: agui.RunAgentInput, questions: dict[str, InterruptRaised]) -> ResumeRequest | None:
    """How a run with these open questions is to go on; None if the request answers none of them."""
    answers: dict[str, Any] = {}
    gives_up = False
    unknown = [entry.interrupt_id for entry in request.resume or () if entry.interrupt_id not in questions]
    if unknown:
        raise AnswerError(f"no open question is called {quote_names(unknown)}; open are: {quote_names([*questions])}")
    for entry in request.resume or ():
        asked = questions[entry.interrupt_id]
        if entry.status == "resolved":
            answers[entry.interrupt_id] = {"content": entry.payload} if is_frontend_call(asked) else entry.payload
        elif is_frontend_call(asked):
            answers[entry.interrupt_id] = {"content": _GIVEN_UP, "is_error": True}
        elif _is_approval(asked):
            answers[entry.interrupt_id] = False
        else:
            gives_up = True
    by_call = {
        asked.tool_call.id: id
        for id, asked in questions.items()
        if asked.tool_call is not None and is_frontend_call(asked)
    }
    results = {by_call[m.tool_call_id]: m for m in _tool_messages(request.messages) if m.tool_call_id in by_call}
    for id, message in results.items():
        content = text_of(content_of(message.content)) or message.error or ""
        answers[id] = {"content": content, "is_error": message.error is not None}
    calls = tuple([message.tool_call_id for message in results.values()])
    return ResumeRequest(answers, calls, gives_up) if answers or gives_up else None


def _tool_messages(messages: Sequence[Any]) -> list[agui.ToolMessage]:
    return [message for message in messages if isinstance(message, agui.ToolMessage)]


def _is_approval(asked: InterruptRaised) -> bool:
    payload: Any = asked.payload
    return isinstance(payload, dict) and cast("dict[str, Any]", payload).get("kind") == "approval"


def _tool(tool: agui.Tool) -> dict[str, Any]:
    if not _TOOL_NAME.fullmatch(tool.name):
        raise ServingError(422, "invalid", "the name of a tool must be 1 to 64 letters, digits, _ or -")
    schema: Any = tool.parameters
    parameters = cast("dict[str, Any]", schema) if isinstance(schema, dict) and schema else ToolSpec("").parameters
    return {"name": tool.name, "description": tool.description, "parameters": parameters}
