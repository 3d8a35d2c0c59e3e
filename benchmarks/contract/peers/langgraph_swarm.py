"""LangGraph with langgraph-swarm: `create_agent`, `create_handoff_tool`, `create_swarm` and a checkpointer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command, interrupt
from langgraph_swarm import create_handoff_tool, create_swarm

from benchmarks.contract.case import BILLING, SHIPPING, TRIAGE, Script, Seen

CONFIG: Any = {"configurable": {"thread_id": "1"}}


class ScriptedModel(BaseChatModel):
    script: Any
    agent: str

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        text, calls = self.script.play(self.agent, [seen(message) for message in messages])
        made = [{"id": id, "name": name, "args": arguments} for id, name, arguments in calls]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text, tool_calls=made))])


def seen(message: Any) -> Seen:
    role = {"human": "user", "ai": "assistant"}.get(message.type, message.type)
    calls = tuple(call["id"] for call in getattr(message, "tool_calls", ()))
    answers = (message.tool_call_id,) if message.type == "tool" else ()
    return Seen(role, str(message.content), calls, answers)


def team(script: Script) -> Any:
    @tool
    async def ask_first() -> str:
        """Ask a person."""
        script.act("before")
        answer = interrupt("go on?")
        script.act("after")
        return f"answered {answer}"

    def agent(name: str, *tools: Any) -> Any:
        targets = [BILLING, SHIPPING] if name == TRIAGE else [TRIAGE]
        handoffs = [create_handoff_tool(agent_name=target) for target in targets]
        return create_agent(ScriptedModel(script=script, agent=name), tools=[*tools, *handoffs], name=name)

    agents = [agent(TRIAGE, *map(tool, script.tools()), ask_first), agent(BILLING), agent(SHIPPING)]
    return create_swarm(agents, default_active_agent=TRIAGE)


class Runner:
    distribution = "langgraph-swarm"
    handoffs = "`create_handoff_tool`, checkpointer"
    notes: Mapping[str, str] = {
        "crash": 'with `durability="sync"`',
        "interrupt": "`interrupt()` starts the tool again on resume, as documented",
    }
    missing: Mapping[str, str] = {}

    async def converse(self, script: Script, *messages: str) -> list[str]:
        app, answers = team(script).compile(checkpointer=InMemorySaver()), []
        for message in messages:
            state = await app.ainvoke({"messages": [{"role": "user", "content": message}]}, CONFIG)
            answers.append(state["messages"][-1].content)
        return answers

    async def start(self, script: Script, folder: Path) -> None:
        async with AsyncSqliteSaver.from_conn_string(str(folder / "c.db")) as saver:
            app = team(script).compile(checkpointer=saver)
            await app.ainvoke({"messages": [{"role": "user", "content": "charge 80"}]}, CONFIG, durability="sync")

    async def resume(self, script: Script, folder: Path) -> str:
        async with AsyncSqliteSaver.from_conn_string(str(folder / "c.db")) as saver:
            app = team(script).compile(checkpointer=saver)
            await app.ainvoke(None, CONFIG, durability="sync")
            return "resumes from the checkpoint"

    async def interrupt(self, script: Script) -> str:
        app = team(script).compile(checkpointer=InMemorySaver())
        await app.ainvoke({"messages": [{"role": "user", "content": "go"}]}, CONFIG)
        state = await app.ainvoke(Command(resume="yes"), CONFIG)
        return state["messages"][-1].content
