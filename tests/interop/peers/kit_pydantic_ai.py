"""A scripted model in place of every model of Pydantic AI, for the programs on the page about other kits."""

import pydantic_ai.models
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

READ = []
"""The number of messages that each call of the model has read."""


def respond(messages, info):
    READ.append(len(messages))
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse([TextPart(str(last.content))])
    if info.function_tools:
        return ModelResponse([ToolCallPart(info.function_tools[0].name, {"request": last.content})])
    return ModelResponse([TextPart("It is sunny in Rome.")])


scripted = FunctionModel(respond)
pydantic_ai.models.infer_model = lambda *args, **kwargs: scripted
