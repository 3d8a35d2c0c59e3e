"""A scripted model in place of every model of Swarm, for the programs on the migration pages."""

from types import SimpleNamespace

import openai
from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageToolCall


def call(name, arguments):
    return ChatCompletionMessage(
        role="assistant",
        tool_calls=[
            ChatCompletionMessageToolCall(id=name, type="function", function={"name": name, "arguments": arguments})
        ],
    )


STEPS = [
    call("to_refunds", "{}"),
    call("refund", '{"order": "A-17"}'),
    ChatCompletionMessage(role="assistant", content="The money is on its way."),
]


class OpenAI:
    def __init__(self, *args, **kwargs):
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self.create))

    def create(self, **kwargs):
        return SimpleNamespace(choices=[SimpleNamespace(message=STEPS.pop(0))])


openai.OpenAI = OpenAI
