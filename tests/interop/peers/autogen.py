"""A scripted model in place of AutoGen's OpenAI client, for the programs on the migration pages."""

import autogen_ext.models.openai
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient


def call(name, arguments="{}"):
    calls = [FunctionCall(id=name, name=name, arguments=arguments)]
    return CreateResult(finish_reason="function_calls", content=calls, usage=RequestUsage(0, 0), cached=False)


STEPS = [
    call("transfer_to_refunds"),
    call("transfer_to_user"),
    call("refund", '{"order": "A-17"}'),
    "The money is on its way.",
]
INFO = {
    "vision": False,
    "function_calling": True,
    "json_output": False,
    "family": "unknown",
    "structured_output": False,
}
autogen_ext.models.openai.OpenAIChatCompletionClient = lambda **options: ReplayChatCompletionClient(
    STEPS, model_info=INFO
)
