"""The choices of the embedded model and the prompts of its three steps."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from ...errors import ModelRequestError, quote_names
from ...messages import AssistantMessage, Message, SystemMessage, ToolMessage, ToolSpec, UserMessage, text_of
from ..encoding import unused_name
from ..model import ModelRequest
from .engine import PromptTurn
from .prompt_texts import ArgumentsExample, ChoiceExample, Language, PromptTexts


class Choice(Struct, frozen=True):
    """A possible step: `tool` is None for a reply, `arguments` until they are filled in."""

    name: str
    description: str = ""
    tool: ToolSpec | None = None
    arguments: str | None = None


def list_choices(request: ModelRequest, *, reply: str) -> tuple[Choice, ...]:
    """List the possible steps, the reply last; `reply` describes it."""
    choice = request.tool_choice or "auto"
    tools = () if choice == "none" else request.tools
    if choice not in ("auto", "required", "none"):
        tools = tuple(spec for spec in tools if spec.name == choice)
        if not tools:
            offered = quote_names([spec.name for spec in request.tools])
            raise ModelRequestError(f"tool_choice is `{choice}`, and the tools are: {offered}")
    options = [option for spec in tools for option in _choices_of(spec, request.instructions)]
    names = [option.name for option in options]
    # Two tools may take the same values; the qualified names are unique.
    options = [option if names.count(option.name) == 1 else _qualified(option) for option in options]
    if choice in ("auto", "none") or not options:
        options.append(Choice(unused_name("reply", names), reply))
    return tuple(options)


def calls_so_far(request: ModelRequest) -> dict[str, list[Any]]:
    """Return the arguments of all calls since the last user message, by tool."""
    made: dict[str, list[Any]] = {}
    for message in reversed(request.messages):
        if isinstance(message, UserMessage):
            break
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                made.setdefault(call.name, []).append(read_arguments(call.arguments))
    return made


def read_arguments(arguments: str) -> Any:
    """Decode arguments; text that is not JSON is returned as it is."""
    try:
        return msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments


def _choices_of(spec: ToolSpec, instructions: str) -> Iterator[Choice]:
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
                yield Choice(value, _describe(value, instructions), spec, arguments)
            return
    yield Choice(spec.name, spec.description, spec)


def _describe(value: str, instructions: str) -> str:
    """Return the description of a value in the instructions: the rest of the line `- value: …`."""
    found = re.search(rf"^[ \t]*[-*][ \t]*`?{re.escape(value)}`?[ \t]*[:：][ \t]*(\S.*)$", instructions, re.MULTILINE)
    return found.group(1).strip() if found else ""


def _qualified(option: Choice) -> Choice:
    owner = option.tool.name if option.tool is not None else ""
    return msgspec.structs.replace(option, name=f"{owner}: {option.name}")


# The newest messages matter most, and reading a long prompt takes seconds on a CPU.
_MAX_MESSAGES = 12


def language_of(request: ModelRequest) -> Language:
    """Return `zh` if a user message is in Chinese, else `en`."""
    return (
        "zh" if any(_is_chinese(text_of(m.content)) for m in request.messages if isinstance(m, UserMessage)) else "en"
    )


def to_choose(request: ModelRequest, options: Sequence[Choice], texts: PromptTexts) -> tuple[PromptTurn, ...]:
    """Build the prompt whose answer is the name of the next step."""
    steps = "\n".join(f"- {o.name}: {o.description}" if o.description else f"- {o.name}" for o in options)
    # Without the instructions, more questions reached the right agent.
    conversation = _transcript(request.messages, texts)
    step = ChoiceExample(request.agent, steps, conversation)
    return _few_shot(texts.choose, texts.choosing, (*texts.choices, step))


def to_fill(request: ModelRequest, spec: ToolSpec, texts: PromptTexts) -> tuple[PromptTurn, ...]:
    """Build the prompt whose answer is the arguments of a tool."""
    parameters = _parameters(spec.parameters)
    conversation = _transcript(request.messages, texts)
    tool = ArgumentsExample(spec.name, spec.description, parameters, conversation)
    return _few_shot(texts.fill, texts.filling, (*texts.fillings, tool))


def _few_shot(
    instructions: str, question: str, cases: Sequence[ChoiceExample | ArgumentsExample]
) -> tuple[PromptTurn, ...]:
    """Ask for the answer to the last case; the others show their answers."""
    turns = [PromptTurn("system", instructions)]
    for case in cases:
        turns += [PromptTurn("user", question.format(**asdict(case))), PromptTurn("assistant", case.answer)]
    return tuple(turns[:-1])


def to_speak(request: ModelRequest, options: Sequence[Choice], texts: PromptTexts) -> tuple[PromptTurn, ...]:
    """Build the prompt whose answer is text: the conversation with the tool results."""
    system = [task] if (task := own_instructions(request, options)) else []
    system += [text_of(message.content) for message in request.messages if isinstance(message, SystemMessage)]
    turns = [PromptTurn("system", "\n\n".join([*system, texts.speak.format(agent=request.agent)]))]
    for role, text in _conversation(request.messages, texts):
        if turns[-1].role == role:
            turns[-1] = PromptTurn(role, f"{turns[-1].text}\n{text}")
        else:
            turns.append(PromptTurn(role, text))
    return tuple(turns)


def own_instructions(request: ModelRequest, options: Sequence[Choice]) -> str:
    """Return the instructions without paragraphs about tools whose values are separate choices."""
    tools = {
        option.name: option.tool.name for option in options if option.tool is not None and option.arguments != "{}"
    }
    spread = {(name, tool) for name, tool in tools.items() if name != tool}
    paragraphs = request.instructions.split("\n\n")
    return "\n\n".join(
        paragraph
        for paragraph in paragraphs
        if not any(f"`{tool}`" in paragraph or f"\n- {name}" in f"\n{paragraph}" for name, tool in spread)
    ).strip()


def _conversation(messages: Sequence[Message], texts: PromptTexts) -> Iterator[tuple[Any, str]]:
    for message in messages:
        text = text_of(message.content)
        if isinstance(message, ToolMessage):
            yield "user", f"({texts.returned.format(tool=message.name, text=text)})"
        elif isinstance(message, AssistantMessage):
            if text:
                yield "assistant", text
        elif isinstance(message, UserMessage):
            yield "user", text
    if messages and isinstance(messages[-1], ToolMessage):
        yield "user", texts.after_result


def _transcript(messages: Sequence[Message], texts: PromptTexts) -> str:
    return "\n".join(line for message in messages[-_MAX_MESSAGES:] for line in _lines(message, texts))


def _lines(message: Message, texts: PromptTexts) -> Iterator[str]:
    text = text_of(message.content)
    if isinstance(message, ToolMessage):
        yield texts.returned.format(tool=message.name, text=text)
    elif isinstance(message, AssistantMessage):
        if text:
            yield texts.assistant.format(text=text)
        for call in message.tool_calls:
            yield texts.called.format(call=f"{call.name}({call.arguments})")
    elif isinstance(message, UserMessage):
        yield texts.user.format(text=text)


def _parameters(schema: dict[str, Any]) -> str:
    """Describe the parameters in one line: a JSON schema distracts small models."""
    properties: dict[str, dict[str, Any]] = schema.get("properties") or {}
    return ", ".join(_parameter(name, one) for name, one in properties.items())


def _parameter(name: str, schema: dict[str, Any]) -> str:
    kind = " | ".join(str(value) for value in schema.get("enum", ())) or str(schema.get("type", "value"))
    description = schema.get("description", "")
    return f"{name} ({kind}: {description})" if description else f"{name} ({kind})"


def _is_chinese(text: str) -> bool:
    letters = [letter for letter in text if letter.isalpha()]
    return 3 * sum("\u4e00" <= letter <= "\u9fff" for letter in letters) > len(letters)
