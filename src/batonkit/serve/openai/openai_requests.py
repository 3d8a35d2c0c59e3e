"""Requests of Chat Completions and Responses: their messages, tools and thread."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ...errors import SetupError
from ...messages import Message, RunInput, SystemMessage, ToolMessage, UserMessage, text_of, to_messages
from ...runs import Runner
from ..frontend_tools import FrontendTools, frontend_tool
from ..http.http_errors import ServingError

OPEN_WEBUI_CHAT = "x-openwebui-chat-id"
OPEN_WEBUI_TASK = "x-openwebui-task"
"""Headers of Open WebUI: the chat of a request, and its purpose if it is not an answer in that chat."""
_TASK_PROMPT = "### Task:"
"""The first words of the prompts with which Open WebUI asks for titles, tags and follow-up questions."""
_MAX_THREAD = 200


class InvalidRequestError(ServingError):
    """A parameter of a request is wrong."""

    def __init__(self, param: str, message: str, *, status: int = 400, code: str = "invalid_value") -> None:
        super().__init__(status, code, message)
        self.param = param


class StreamOptions(Struct):
    """Options of a streamed completion."""

    include_usage: bool | None = False


class ClientFunction(Struct):
    """A function that the client executes."""

    name: str
    description: str | None = None
    parameters: Any = None


class ModelBody(Struct):
    """The fields that both kinds of request have; all others are ignored."""

    model: str
    stream: bool | None = False
    user: Any = None
    metadata: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None


class ChatBody(ModelBody, kw_only=True):
    """A request of Chat Completions."""

    messages: list[dict[str, Any]]
    stream_options: StreamOptions | None = None
    n: int | None = 1


class ConversationRef(Struct):
    """A conversation as an object."""

    id: str


class ResponsesBody(ModelBody, kw_only=True):
    """A request of Responses."""

    input: str | list[dict[str, Any]]
    previous_response_id: str | None = None
    conversation: str | ConversationRef | None = None
    background: bool | None = False


def parse_chat(content: bytes) -> ChatBody:
    """Parse a request of Chat Completions.

    Raises:
        InvalidRequestError: The request asks for more than one choice.
    """
    body = msgspec.json.decode(content, type=ChatBody)
    if body.n not in (None, 1):
        raise InvalidRequestError("n", "`n` must be 1: a team gives one answer")
    return body


def parse_responses(content: bytes) -> ResponsesBody:
    """Parse a request of Responses.

    Raises:
        InvalidRequestError: The request names its conversation in two ways.
    """
    body = msgspec.json.decode(content, type=ResponsesBody)
    if body.conversation is not None and body.previous_response_id is not None:
        raise InvalidRequestError("conversation", "give `conversation` or `previous_response_id`, not both")
    return body


def read_messages(input: RunInput, param: str) -> Sequence[Message]:
    """Return the messages of a request, without instructions: agents have their own.

    Raises:
        InvalidRequestError: A message is not one of OpenAI's, or there is none.
    """
    try:
        messages = [each for each in to_messages(input, what=param) if not isinstance(each, SystemMessage)]
    except SetupError as error:
        raise InvalidRequestError(param, str(error)) from None
    if not messages or not isinstance(messages[-1], UserMessage | ToolMessage):
        raise InvalidRequestError(param, f"`{param}` must end with a message of the user or the result of a tool")
    return messages


def trailing(messages: Sequence[Message], kind: type[Message]) -> list[Any]:
    """Return the messages of a kind at the end."""
    start = len(messages)
    while start and isinstance(messages[start - 1], kind):
        start -= 1
    return [*messages[start:]]


def read_tools(body: ModelBody, runner: Runner[Any, Any]) -> list[dict[str, Any]]:
    """Return the tools of the client as they are stored in a run's values.

    Raises:
        InvalidRequestError: A tool is not a valid function, or no agent of the team takes tools of the client.
    """
    if not body.tools or body.tool_choice == "none":
        return []
    if not any(isinstance(member.agent, FrontendTools) for member in runner.team.members.values()):
        message = (
            f"no agent of `{body.model}` takes tools of the client; wrap one on the server: with_frontend_tools(…)"
        )
        raise InvalidRequestError("tools", message, code="unsupported_value")
    tools: list[dict[str, Any]] = []
    for position, tool in enumerate(body.tools):
        if tool.get("type") != "function":
            raise InvalidRequestError(f"tools[{position}]", "a tool of the client must have the type `function`")
        try:
            # Chat Completions has the fields under `function`.
            function = msgspec.convert(tool.get("function", tool), ClientFunction)
            tools.append(frontend_tool(function.name, function.description, function.parameters))
        except msgspec.ValidationError as error:
            raise InvalidRequestError(f"tools[{position}]", f"the function is not valid: {error}") from None
        except SetupError as error:
            raise InvalidRequestError(f"tools[{position}].name", str(error)) from None
    return tools


def find_thread(
    body: ModelBody, headers: Mapping[str, str], sources: Sequence[str], messages: Sequence[Message]
) -> str:
    """Return the thread that a request names in one of the places; "" if it names none.

    Raises:
        InvalidRequestError: The name cannot be that of a thread.
    """
    for source in sources:
        metadata_key = source.removeprefix("metadata.")
        if source == "user":
            thread = body.user
        elif metadata_key != source:
            thread = (body.metadata or {}).get(metadata_key)
        else:
            thread = headers.get(source)
        if not thread:
            continue
        if source == OPEN_WEBUI_CHAT and _is_open_webui_task(headers, messages):
            return ""
        return check_thread(thread, source)
    return ""


def check_thread(thread: Any, param: str) -> str:
    """Return the name of a thread.

    Raises:
        InvalidRequestError: It is not text, too long, or has characters that cannot be printed.
    """
    if not isinstance(thread, str) or not thread.isprintable() or len(thread) > _MAX_THREAD:
        raise InvalidRequestError(param, f"`{param}` must be text of at most {_MAX_THREAD} printable characters")
    return thread


def _is_open_webui_task(headers: Mapping[str, str], messages: Sequence[Message]) -> bool:
    return bool(headers.get(OPEN_WEBUI_TASK)) or text_of(messages[-1].content).startswith(_TASK_PROMPT)
