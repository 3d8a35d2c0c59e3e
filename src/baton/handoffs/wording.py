"""What a model is told about the agents it may transfer to, in English and in Chinese."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

PromptLanguage: TypeAlias = Literal["en", "zh"]

_ENGLISH = """\
You work in a team. These agents can take over the conversation from you:
{agents}

Decide first who is best suited to deal with the request:
- If it is you, answer it yourself.
- If it is one of the agents above, call `{tool}` with that agent's name. When you transfer, output nothing but \
the call: the other agent sees the whole conversation."""

_CHINESE = """\
你是团队的一员。以下智能体可以从你这里接手对话：
{agents}

先判断由谁来处理当前请求最合适：
- 如果最合适的是你，请直接回答。
- 如果是上面某个智能体，请调用 `{tool}` 并给出它的名称。移交时只输出该调用，不要输出其他内容：对方能看到完整的对话。"""

_TOOL = {
    "en": "Give the conversation to another agent of your team, who then deals with it.",
    "zh": "把对话移交给团队中的另一个智能体，由它继续处理。",
}

_EXAMPLES = {"en": "For example: {examples}", "zh": "例如：{examples}"}

_PARAMETER = {"en": "The name of the agent that takes over.", "zh": "接手对话的智能体的名称。"}


def transfer_section(targets: Sequence[tuple[str, str]], tool: str, *, language: PromptLanguage) -> str:
    """The part of the instructions that lists the agents (name, description) and says when to transfer."""
    agents = "\n".join(f"- {name}: {description}" if description else f"- {name}" for name, description in targets)
    return (_CHINESE if language == "zh" else _ENGLISH).format(agents=agents, tool=tool)


def with_examples(description: str, examples: Sequence[str], *, language: PromptLanguage) -> str:
    """What is said about an agent, with questions that are for it, if it gives any."""
    if not examples:
        return description
    quoted = " ".join(f"“{example}”" for example in examples)
    return f"{description} {_EXAMPLES[language].format(examples=quoted)}".lstrip()


def tool_description(language: PromptLanguage) -> str:
    """What the transfer tool says of itself."""
    return _TOOL[language]


def parameter_description(language: PromptLanguage) -> str:
    """What the transfer tool says of its parameter."""
    return _PARAMETER[language]
