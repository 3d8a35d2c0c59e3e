"""The prompts of the three steps: whatever a request says, as turns of a chat that any template can hold.

What a model can choose between: each tool, each value of a tool that only takes one of a few, or a reply.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ...errors import ModelRequestError, quote_names
from ...messages import AssistantMessage, Message, SystemMessage, ToolMessage, ToolSpec, UserMessage, text_of
from ..base import ModelRequest
from .engine import PromptTurn
from .prompt_texts import WORDS, Language, PromptTexts


class Choice(Struct, frozen=True):
    """One thing to choose. `tool` is None for a reply; `arguments` is None where they are still to be filled in."""

    name: str
    description: str = ""
    tool: ToolSpec | None = None
    arguments: str | None = None


def options_of(request: ModelRequest, *, reply: str) -> tuple[Choice, ...]:
    """All that may be chosen, a reply last; `reply` is how that is described. One option: there is no choice."""
    wish = request.settings.tool_choice or "auto"
    tools = () if wish == "none" else request.tools
    if wish not in ("auto", "required", "none"):
        tools = tuple(spec for spec in tools if spec.name == wish)
        if not tools:
            offered = quote_names([spec.name for spec in request.tools])
            raise ModelRequestError(f"tool_choice asks for `{wish}`, and the tools are: {offered}")
    options = [option for spec in tools for option in _options_from(spec, request.instructions)]
    names = [option.name for option in options]
    # Two tools may take the same values; the longer names cannot meet.
    options = [
        option if names.count(option.name) == 1 or option.tool is None else _with_long_name(option)
        for option in options
    ]
    if wish in ("auto", "none") or not options:
        options.append(Choice(_unused("reply", names), reply))
    return tuple(options)


def calls_so_far(request: ModelRequest) -> dict[str, list[Any]]:
    """The arguments of all calls since somebody else last said something, by the name of the tool."""
    made: dict[str, list[Any]] = {}
    for message in reversed(request.messages):
        if isinstance(message, UserMessage):
            break
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                made.setdefault(call.name, []).append(read_arguments(call.arguments))
    return made


def read_arguments(arguments: str) -> Any:
    """What the arguments say; as they are if they are not JSON."""
    try:
        return msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments


def _options_from(spec: ToolSpec, instructions: str) -> Iterator[Choice]:
    properties: dict[str, dict[str, Any]] = spec.parameters.get("properties") or {}
    if not properties:
        yield Choice(spec.name, spec.description, spec, "{}")
        return
    if len(properties) == 1:
        ((parameter, schema),) = properties.items()
        values: list[Any] = schema.get("enum") or []
        if values and all(isinstance(value, str) and value for value in values):
            for value in values:
                arguments = msgspec.json.encode({parameter: value}).decode()
                yield Choice(value, _told_about(value, instructions), spec, arguments)
            return
    yield Choice(spec.name, spec.description, spec)


def _told_about(value: str, instructions: str) -> str:
    """What a list in the instructions says about a value: the rest of the line `- value: …`."""
    found = re.search(rf"^[ \t]*[-*][ \t]*`?{re.escape(value)}`?[ \t]*[:：][ \t]*(\S.*)$", instructions, re.MULTILINE)
    return found.group(1).strip() if found else ""


def _with_long_name(option: Choice) -> Choice:
    owner = option.tool.name if option.tool is not None else ""
    return msgspec.structs.replace(option, name=f"{owner}: {option.name}")


def _unused(name: str, taken: list[str]) -> str:
    while name in taken:
        name += "_"
    return name


# Of a long conversation the newest part counts, and reading takes a processor seconds.
_MESSAGES_SHOWN = 12


def language_of(request: ModelRequest) -> Language:
    """Chinese if somebody speaks Chinese in it."""
    return (
        "zh" if any(_is_chinese(text_of(m.content)) for m in request.messages if isinstance(m, UserMessage)) else "en"
    )


def words_for(request: ModelRequest) -> PromptTexts:
    """The words of the language that is spoken in it."""
    return WORDS[language_of(request)]


def to_choose(request: ModelRequest, options: Sequence[Choice], words: PromptTexts) -> tuple[PromptTurn, ...]:
    """What to do next, as a question whose answer is the name of an option."""
    turns = [PromptTurn("system", words.choose)]
    for shown in words.choices:
        asked = words.choosing.format(agent=shown.agent, steps=shown.steps, conversation=shown.conversation)
        turns += [PromptTurn("user", asked), PromptTurn("assistant", shown.answer)]
    steps = "\n".join(f"- {o.name}: {o.description}" if o.description else f"- {o.name}" for o in options)
    # The instructions are left out: with them, fewer questions went to the right agent.
    conversation = _transcript(request.messages, words)
    return (
        *turns,
        PromptTurn("user", words.choosing.format(agent=request.agent, steps=steps, conversation=conversation)),
    )


def to_fill(request: ModelRequest, spec: ToolSpec, words: PromptTexts) -> tuple[PromptTurn, ...]:
    """What a tool should be called with, as a question whose answer is JSON."""
    turns = [PromptTurn("system", words.fill)]
    for shown in words.fillings:
        asked = words.filling.format(
            tool=shown.tool,
            description=shown.description,
            parameters=shown.parameters,
            conversation=shown.conversation,
        )
        turns += [PromptTurn("user", asked), PromptTurn("assistant", shown.answer)]
    asked = words.filling.format(
        tool=spec.name,
        description=spec.description,
        parameters=_parameters(spec.parameters),
        conversation=_transcript(request.messages, words),
    )
    return (*turns, PromptTurn("user", asked))


def to_speak(request: ModelRequest, options: Sequence[Choice], words: PromptTexts) -> tuple[PromptTurn, ...]:
    """The conversation itself, with what tools returned where they returned it."""
    told = [task] if (task := own_words(request, options)) else []
    told += [text_of(message.content) for message in request.messages if isinstance(message, SystemMessage)]
    turns = [PromptTurn("system", "\n\n".join([*told, words.speak.format(agent=request.agent)]))]
    for role, text in _spoken(request.messages, words):
        if turns[-1].role == role:
            turns[-1] = PromptTurn(role, f"{turns[-1].text}\n{text}")
        else:
            turns.append(PromptTurn(role, text))
    return tuple(turns)


def own_words(request: ModelRequest, options: Sequence[Choice]) -> str:
    """The instructions without the paragraphs about a tool that is offered value by value: the options say it all."""
    told = {option.name: option.tool.name for option in options if option.tool is not None and option.arguments != "{}"}
    spread = {(name, tool) for name, tool in told.items() if name != tool}
    paragraphs = request.instructions.split("\n\n")
    return "\n\n".join(
        paragraph
        for paragraph in paragraphs
        if not any(f"`{tool}`" in paragraph or f"\n- {name}" in f"\n{paragraph}" for name, tool in spread)
    ).strip()


def _spoken(messages: Sequence[Message], words: PromptTexts) -> Iterator[tuple[Any, str]]:
    for message in messages:
        text = text_of(message.content)
        if isinstance(message, ToolMessage):
            yield "user", f"({words.returned.format(tool=message.name, text=text)})"
        elif isinstance(message, AssistantMessage):
            if text:
                yield "assistant", text
        elif isinstance(message, UserMessage):
            yield "user", text
    if messages and isinstance(messages[-1], ToolMessage):
        yield "user", words.after_result


def _transcript(messages: Sequence[Message], words: PromptTexts) -> str:
    return "\n".join(line for message in messages[-_MESSAGES_SHOWN:] for line in _lines(message, words))


def _lines(message: Message, words: PromptTexts) -> Iterator[str]:
    text = text_of(message.content)
    if isinstance(message, ToolMessage):
        yield words.returned.format(tool=message.name, text=text)
    elif isinstance(message, AssistantMessage):
        if text:
            yield words.assistant.format(text=text)
        for call in message.tool_calls:
            yield words.called.format(call=f"{call.name}({call.arguments})")
    elif isinstance(message, UserMessage):
        yield words.user.format(text=text)


def _parameters(schema: dict[str, Any]) -> str:
    """The parameters in a line: a schema as it is takes a small model's mind off the conversation."""
    properties: dict[str, dict[str, Any]] = schema.get("properties") or {}
    return ", ".join(_parameter(name, one) for name, one in properties.items())


def _parameter(name: str, schema: dict[str, Any]) -> str:
    kind = " | ".join(str(value) for value in schema.get("enum", ())) or str(schema.get("type", "value"))
    description = schema.get("description", "")
    return f"{name} ({kind}: {description})" if description else f"{name} ({kind})"


def _is_chinese(text: str) -> bool:
    letters = [letter for letter in text if letter.isalpha()]
    return 3 * sum("\u4e00" <= letter <= "\u9fff" for letter in letters) > len(letters)
