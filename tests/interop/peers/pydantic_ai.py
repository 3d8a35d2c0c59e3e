"""A scripted model in place of every model of Pydantic AI, for the programs on the migration pages."""

import pydantic_ai.models
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

STEPS = [
    ModelResponse([ToolCallPart("ask_refunds", {"request": "Refund A-17"})]),
    ModelResponse([ToolCallPart("refund", {"order": "A-17"})]),
    ModelResponse([TextPart("A-17 is refunded.")]),
    ModelResponse([TextPart("The money is on its way.")]),
]
scripted = FunctionModel(lambda messages, info: STEPS.pop(0))
pydantic_ai.models.infer_model = lambda *args, **kwargs: scripted
