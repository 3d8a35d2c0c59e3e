"""Requests of `useChat`: the new message of the user, answers to questions, and tools of the client."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ...errors import SetupError
from ...log import InterruptRaised
from ...messages import Part, Text, UserMessage, to_media
from ...messages.input_parts import InvalidInputError, from_base64, parse_data_url
from ..frontend_tools import TOOLS, frontend_tool, is_frontend_call
from ..http.http_errors import ServingError, check_interrupt_ids

_MAX_CHAT_ID = 200


class ApprovalPart(Struct, frozen=True):
    """The user's decision about a tool call."""

    id: str
    approved: bool | None = None
    reason: str | None = None

    def to_answer(self) -> dict[str, Any]:
        """Return the answer to the approval request."""
        return {"approved": bool(self.approved), "reason": self.reason or ""}


class UIPart(Struct, frozen=True, rename="camel"):
    """The fields of all kinds of message parts that the server reads."""

    type: str
    text: str = ""
    url: str = ""
    media_type: str | None = None
    filename: str | None = None
    tool_call_id: str = ""
    state: str = ""
    approval: ApprovalPart | None = None
    output: Any = None
    error_text: str | None = None

    def to_result(self) -> dict[str, Any]:
        """Return the result of a tool that the client has executed."""
        is_error = self.state == "output-error"
        return {"content": self.error_text if is_error else self.output, "is_error": is_error}


class UIMessage(Struct, frozen=True):
    """A message as the client shows it; an assistant message is a run and has its id."""

    id: str
    role: str
    parts: tuple[UIPart, ...]


class ClientTool(Struct, frozen=True):
    """A tool that the client executes."""

    description: str | None = None
    parameters: Any = None


class ChatRequest(Struct, frozen=True, rename="camel"):
    """The body of a request."""

    id: str
    messages: tuple[UIMessage, ...] = ()
    trigger: str = "submit-message"
    message_id: str | None = None
    """The message that the response continues, or that the user has edited."""
    answers: dict[str, Any] = {}
    """Answers by the id of their `data-question` part."""
    tools: dict[str, ClientTool] = {}
    """The tools of the client by name."""

    def has_message(self, id: str) -> bool:
        """Return whether the client has a message."""
        return any(message.id == id for message in self.messages)

    def continues(self, run_id: str) -> bool:
        """Return whether the response continues the message of a run."""
        if self.message_id == run_id or not self.messages:
            return True
        return self.messages[-1].role != "user"

    def user_message(self) -> UserMessage:
        """Return the new message of the user.

        Raises:
            ServingError: The last message is not the user's, or is empty.
        """
        last = self.messages[-1] if self.messages else None
        if last is None or last.role != "user":
            raise ServingError(422, "invalid", "`messages` must end with a message of the user")
        parts = [_to_part(part) for part in last.parts if part.type in ("text", "file")]
        if not parts:
            raise ServingError(422, "invalid", "the last message has neither text nor files")
        if len(parts) == 1 and isinstance(parts[0], Text):
            return UserMessage(parts[0].text)
        return UserMessage(tuple(parts))

    def initial_values(self) -> dict[str, Any]:
        """Return the initial values of a run: the tools of the client.

        Raises:
            ServingError: No model accepts the name of a tool.
        """
        try:
            tools = [frontend_tool(name, tool.description, tool.parameters) for name, tool in self.tools.items()]
        except SetupError as error:
            raise ServingError(422, "invalid", str(error)) from None
        return {TOOLS: tools} if tools else {}

    def parse_answers(self, run_id: str, interrupts: Mapping[str, InterruptRaised]) -> dict[str, Any]:
        """Return the answers to open interrupts, in `answers` and in the parts of messages.

        Raises:
            AnswerError: The request answers a question that is not open.
        """
        questions = {question_id(run_id, key): key for key in interrupts}
        check_interrupt_ids(self.answers, questions)
        answers = {questions[id]: answer for id, answer in self.answers.items()}
        calls = {
            raised.tool_call.id: key
            for key, raised in interrupts.items()
            if raised.tool_call is not None and is_frontend_call(raised)
        }
        for message in self.messages:
            for part in message.parts:
                decision = part.approval
                if decision is not None and part.state == "approval-responded" and decision.id in questions:
                    answers[questions[decision.id]] = decision.to_answer()
                elif message.id == run_id and part.tool_call_id in calls and part.state.startswith("output-"):
                    answers[calls[part.tool_call_id]] = part.to_result()
        return answers


def parse_chat_request(content: bytes) -> ChatRequest:
    """Parse a request body.

    Raises:
        ServingError: The id of the chat is not valid.
    """
    body = msgspec.json.decode(content, type=ChatRequest)
    check_chat_id(body.id)
    return body


def check_chat_id(id: str) -> str:
    """Return the id of a chat.

    Raises:
        ServingError: It is empty, too long, or has characters that cannot be printed.
    """
    if not id or not id.isprintable() or len(id) > _MAX_CHAT_ID:
        raise ServingError(422, "invalid", f"the id of a chat must be 1 to {_MAX_CHAT_ID} printable characters")
    return id


def question_id(run_id: str, key: str) -> str:
    """Return the id of an interrupt for clients, which is unique in a thread."""
    return f"{run_id}:{key}"


def _to_part(part: UIPart) -> Part:
    if part.type == "text":
        return Text(part.text)
    if part.url.startswith("data:"):
        return _to_inline_media(part)
    if not part.url.startswith(("http://", "https://")):
        raise ServingError(422, "invalid", "the url of a file must begin with `data:`, `http://` or `https://`")
    return to_media(part.media_type, url=part.url, name=part.filename)


def _to_inline_media(part: UIPart) -> Part:
    problem = ServingError(422, "invalid", "the data URL of a file must contain base64")
    parsed = parse_data_url(part.url)
    if parsed is None:
        raise problem
    media_type, text = parsed
    try:
        data = from_base64(text, "url")
    except InvalidInputError:
        raise problem from None
    return to_media(part.media_type or media_type, data=data, name=part.filename)
