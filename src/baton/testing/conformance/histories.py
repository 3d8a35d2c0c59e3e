"""Conversations that a model must be able to pass on: all of them happen in runs."""

from ...messages import (
    AssistantMessage,
    Data,
    File,
    Image,
    Message,
    Reasoning,
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)

_PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360000002000154a24f5d0000000049454e44ae426082"
)
_PDF = b"%PDF-1.4\n%%EOF\n"
_WAVE, _BOW = ToolCall("call_1", "wave", '{"times":2}'), ToolCall("call_2", "bow")
_HELLO, _DONE = UserMessage("Hello"), AssistantMessage("Done.")
_WAVED, _BOWED = ToolMessage("call_1", "wave", "waved"), ToolMessage("call_2", "bow", "bowed")

HISTORIES: dict[str, tuple[Message, ...]] = {
    "one message": (_HELLO,),
    "several turns": (_HELLO, AssistantMessage("Hi, what is it?"), UserMessage("The weather.")),
    "user twice": (_HELLO, UserMessage("Anybody there?")),
    "assistant twice": (_HELLO, AssistantMessage("Hi."), AssistantMessage("What is it?"), UserMessage("Nothing.")),
    "assistant first": (AssistantMessage("How can I help?"), _HELLO),
    "assistant last": (_HELLO, AssistantMessage("Hi.")),
    "words of another agent": (
        _HELLO,
        UserMessage("For context: [Router] said: I pass you on."),
        UserMessage("For context: [Router] called tool: `wave` with arguments: {}."),
    ),
    "application in the middle": (_HELLO, SystemMessage("The user is in a hurry."), UserMessage("Well?")),
    "a call and its result": (_HELLO, AssistantMessage(tool_calls=(_WAVE,)), _WAVED),
    "text beside a call": (_HELLO, AssistantMessage("One moment.", (_WAVE,)), _WAVED, _DONE, UserMessage("Thanks")),
    "two calls at once": (_HELLO, AssistantMessage(tool_calls=(_WAVE, _BOW)), _WAVED, _BOWED),
    "a call after a call": (
        _HELLO,
        AssistantMessage(tool_calls=(_WAVE,)),
        _WAVED,
        AssistantMessage(tool_calls=(_BOW,)),
        _BOWED,
        _DONE,
        UserMessage("Thanks"),
    ),
    "a result and then the user": (_HELLO, AssistantMessage(tool_calls=(_WAVE,)), _WAVED, UserMessage("Thanks")),
    "a failed call": (
        _HELLO,
        AssistantMessage(tool_calls=(_WAVE,)),
        ToolMessage("call_1", "wave", "it hurts", is_error=True),
    ),
    "an empty result": (_HELLO, AssistantMessage(tool_calls=(_WAVE,)), ToolMessage("call_1", "wave")),
    "a structured result": (
        _HELLO,
        AssistantMessage(tool_calls=(_WAVE,)),
        ToolMessage("call_1", "wave", (Text("so:"), Data({"waved": 2}))),
    ),
    "empty messages": (_HELLO, AssistantMessage(""), UserMessage(""), UserMessage("Anybody there?")),
    "structured input": (UserMessage((Text("Read this:"), Data({"city": "Rome"}))),),
    "thoughts of another provider": (
        _HELLO,
        AssistantMessage("Hi.", reasoning=(Reasoning("Hm.", "somebody else", {"signature": "x"}),)),
        UserMessage("Go on"),
    ),
    "ids of another provider": (
        _HELLO,
        AssistantMessage(tool_calls=(ToolCall(f"chatcmpl:tool/{'ä' * 80}", "wave"),)),
        ToolMessage(f"chatcmpl:tool/{'ä' * 80}", "wave", "waved"),
    ),
    "arguments that are no JSON": (
        _HELLO,
        AssistantMessage(tool_calls=(ToolCall("call_1", "wave", '{"times": '),)),
        ToolMessage("call_1", "wave", "these are no arguments", is_error=True),
    ),
}
"""By what is special about them. Each is valid as a request has to be: every call directly before its result."""

MEDIA: dict[str, tuple[Message, ...]] = {
    "images": (UserMessage((Text("What is this?"), Image(data=_PNG))),),
    "image urls": (UserMessage((Text("What is this?"), Image(url="https://example.org/cat.png"))),),
    "files": (UserMessage((Text("Read:"), File(data=_PDF, media_type="application/pdf", name="a.pdf"))),),
}
"""The same for what not every model can read."""
