"""A scripted model in place of every model of the OpenAI Agents SDK, for the programs on the migration pages."""

from agents.items import ModelResponse
from agents.models.interface import Model
from agents.models.multi_provider import MultiProvider
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import agents


def call(name, arguments):
    return ResponseFunctionToolCall(arguments=arguments, call_id=name, name=name, type="function_call")


STEPS = [
    call("transfer_to_refunds", '{"reason": "broken"}'),
    call("refund", '{"order": "A-17"}'),
    ResponseOutputMessage(
        id="m",
        role="assistant",
        status="completed",
        type="message",
        content=[ResponseOutputText(annotations=[], text="The money is on its way.", type="output_text")],
    ),
]


class Scripted(Model):
    async def get_response(self, *args, **kwargs):
        return ModelResponse(output=[STEPS.pop(0)], usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


MultiProvider.get_model = lambda self, name: Scripted()
agents.set_tracing_disabled(True)
