"""A scripted model in place of every model of ADK, for the programs on the migration pages."""

from google.adk.models import BaseLlm, LLMRegistry, LlmResponse
from google.genai import types

STEPS = [
    types.Part(function_call=types.FunctionCall(name="transfer_to_agent", args={"agent_name": "refunds"})),
    types.Part(function_call=types.FunctionCall(name="refund", args={"order": "A-17"})),
    types.Part(text="The money is on its way."),
]


class Scripted(BaseLlm):
    @classmethod
    def supported_models(cls):
        return [r"gemini-.*"]

    async def generate_content_async(self, llm_request, stream=False):
        yield LlmResponse(content=types.Content(role="model", parts=[STEPS.pop(0)]))


LLMRegistry.register(Scripted)
