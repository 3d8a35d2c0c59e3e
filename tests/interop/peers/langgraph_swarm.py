"""A scripted model in place of every model of LangChain, for the programs on the migration pages."""

import langchain.chat_models
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

STEPS = [
    AIMessage("", tool_calls=[{"name": "transfer_to_refunds", "args": {"order": "A-17"}, "id": "1"}]),
    AIMessage("Is the lamp broken?"),
    AIMessage("", tool_calls=[{"name": "refund", "args": {"order": "A-17"}, "id": "2"}]),
    AIMessage("The money is on its way."),
]


class Scripted(BaseChatModel):
    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        return ChatResult(generations=[ChatGeneration(message=STEPS.pop(0))])


langchain.chat_models.init_chat_model = lambda *args, **kwargs: Scripted()
