"""A scripted model in place of every model of the OpenAI Agents SDK, for the programs on the page about other kits."""

import json

from agents.items import ModelResponse
from agents.models.interface import Model
from agents.models.multi_provider import MultiProvider
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import agents

READ = []
"""The number of messages that each call of the model has read."""


def say(text):
    content = [ResponseOutputText(annotations=[], text=text, type="output_text")]
    return ResponseOutputMessage(id="m", role="assistant", status="completed", type="message", content=content)


class Scripted(Model):
    async def get_response(self, system_instructions, input, model_settings, tools, *args, **kwargs):
        READ.append(len(input))
        last = input[-1]
        if last.get("type") == "function_call_output":
            output = last["output"]
            item = say(output if isinstance(output, str) else output[0]["text"])
        elif tools:
            arguments = json.dumps({"request": last["content"]})
            item = ResponseFunctionToolCall(arguments=arguments, call_id="c", name=tools[0].name, type="function_call")
        else:
            item = say("It is sunny in Rome.")
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


MultiProvider.get_model = lambda self, name: Scripted()
agents.set_tracing_disabled(True)
