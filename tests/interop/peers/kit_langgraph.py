"""A scripted model in place of every model of LangChain, for the programs on the page about other kits."""

import langchain.chat_models
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

READ = []
"""The number of messages that each call of the model has read."""


class Scripted(BaseChatModel):
    tools: list = []

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return Scripted(tools=list(tools))

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        READ.append(len(messages))
        last = messages[-1]
        if isinstance(last, ToolMessage):
            content = last.content
            message = AIMessage(content if isinstance(content, str) else content[0]["text"])
        elif self.tools:
            call = {"name": self.tools[0].name, "args": {"request": last.content}, "id": "1"}
            message = AIMessage("", tool_calls=[call])
        else:
            message = AIMessage("It is sunny in Rome.")
        return ChatResult(generations=[ChatGeneration(message=message)])


langchain.chat_models.init_chat_model = lambda *args, **kwargs: Scripted()
