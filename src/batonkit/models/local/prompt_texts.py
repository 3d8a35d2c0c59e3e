"""The prompts of the embedded model in English and Chinese, with examples from an unrelated domain."""

from typing import Literal, TypeAlias

from msgspec import Struct

Language: TypeAlias = Literal["en", "zh"]


class ChoiceExample(Struct, frozen=True):
    """An example of a choice; `answer` is the right step, and empty in a question."""

    agent: str
    steps: str
    conversation: str
    answer: str = ""


class ArgumentsExample(Struct, frozen=True):
    """An example of arguments; `answer` has the right ones, and is empty in a question."""

    tool: str
    description: str
    parameters: str
    conversation: str
    answer: str = ""


class PromptTexts(Struct, frozen=True, kw_only=True):
    """All prompt texts of one language."""

    choose: str
    choosing: str
    choices: tuple[ChoiceExample, ...]
    reply: str
    fill: str
    filling: str
    fillings: tuple[ArgumentsExample, ...]
    speak: str
    after_result: str
    user: str
    assistant: str
    called: str
    returned: str


def _choice_examples(porter: str, loans: str, *conversations: str) -> tuple[ChoiceExample, ...]:
    """Build the examples of a language; agents and right answers are the same in each."""
    agents = [("Porter", porter), ("Porter", porter), ("Loans", loans), ("Loans", loans)]
    cases = zip(agents, conversations, ("Loans", "Front", "find_book", "reply"), strict=True)
    return tuple(ChoiceExample(*agent, conversation, answer) for agent, conversation, answer in cases)


_REPLY = "Answer the user in words."
_PORTER_STEPS = f"""\
- Loans: Lends and renews books.
- Events: Readings and tours.
- Front: Small talk and all other matters.
- reply: {_REPLY}"""
_LOANS_STEPS = f"""\
- find_book: Look up a book and where it stands.
- Porter: Shows the way.
- reply: {_REPLY}"""

_ENGLISH = PromptTexts(
    choose="You decide the next step of an assistant. Answer with one name from its list of steps, nothing else.",
    choosing="Assistant: {agent}\nSteps:\n{steps}\nConversation:\n{conversation}\nNext step?",
    choices=_choice_examples(
        _PORTER_STEPS,
        _LOANS_STEPS,
        "User: Can I keep this novel two weeks longer?",
        "User: Good morning, how are you?",
        "User: Is Dune in?\nUser: For context: [Porter] called tool: `pass` with arguments: Loans.",
        'User: Is Dune in?\nAssistant called find_book({"title":"Dune"})\nfind_book returned: shelf 4, one copy',
    ),
    reply=_REPLY,
    fill="You fill in the arguments of a tool from the conversation. Answer with JSON only; copy names as they are.",
    filling="Tool: {tool}: {description}\nArguments: {parameters}\nConversation:\n{conversation}\nJSON?",
    fillings=(
        ArgumentsExample(
            "find_book",
            "Look up a book.",
            "title (string), copies (integer)",
            "User: I need three copies of Dune, please.",
            '{"title": "Dune", "copies": 3}',
        ),
    ),
    speak="You are {agent}. Answer the user yourself now, in one or two short sentences. Say only what you were told "
    "or what everybody knows.",
    after_result="Answer me now. Begin with what was returned, word for word.",
    user="User: {text}",
    assistant="Assistant: {text}",
    called="Assistant called {call}",
    returned="{tool} returned: {text}",
)

_REPLY_ZH = "用文字回答用户。"
_PORTER_STEPS_ZH = f"""\
- Loans: 借书和续借。
- Events: 讲座和参观。
- Front: 闲聊和其他一切事情。
- reply: {_REPLY_ZH}"""
_LOANS_STEPS_ZH = f"""\
- find_book: 查找一本书在哪里。
- Porter: 指路。
- reply: {_REPLY_ZH}"""

_CHINESE = PromptTexts(
    choose="你决定助手的下一步。只回答步骤列表中的一个名称，不要输出其他内容。",
    choosing="助手：{agent}\n步骤：\n{steps}\n对话：\n{conversation}\n下一步？",
    choices=_choice_examples(
        _PORTER_STEPS_ZH,
        _LOANS_STEPS_ZH,
        "用户：这本小说能再借两周吗？",
        "用户：早上好，你好吗？",
        "用户：有《三体》吗？\n用户：For context: [Porter] called tool: `pass` with arguments: Loans.",
        '用户：有《三体》吗？\n助手调用 find_book({"title":"三体"})\nfind_book 返回：四号书架，一本',
    ),
    reply=_REPLY_ZH,
    fill="你根据对话填写工具的参数。只回答 JSON，名称照抄原文。",
    filling="工具：{tool}：{description}\n参数：{parameters}\n对话：\n{conversation}\nJSON？",
    fillings=(
        ArgumentsExample(
            "find_book",
            "查找一本书。",
            "title (string), copies (integer)",
            "用户：我要三本《三体》。",
            '{"title": "三体", "copies": 3}',
        ),
    ),
    speak="你是 {agent}。现在由你自己用一两句简短的中文回答用户，只说已知的内容，不要编造。",
    after_result="现在请回答我，先照原样说出返回的内容。",
    user="用户：{text}",
    assistant="助手：{text}",
    called="助手调用 {call}",
    returned="{tool} 返回：{text}",
)

PROMPT_TEXTS: dict[Language, PromptTexts] = {"en": _ENGLISH, "zh": _CHINESE}
