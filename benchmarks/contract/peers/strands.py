"""Strands Agents: `Swarm` with its tool `handoff_to_agent`, and a session manager in files."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from strands import Agent, ToolContext, tool
from strands.models import Model
from strands.multiagent import Swarm
from strands.session.file_session_manager import FileSessionManager

from benchmarks.contract.case import BILLING, SHIPPING, TRIAGE, Call, Script, Seen, StillRunningError

logging.disable(logging.ERROR)


class StatusFailed(Exception):
    """The swarm returned with the status `failed`."""


class ScriptedModel(Model):
    def __init__(self, script: Script, agent: str) -> None:
        self.script = script
        self.agent = agent

    def update_config(self, **config: Any) -> None:
        pass

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **options: Any) -> AsyncIterator[Any]:
        read = [seen(message) for message in messages]
        # The swarm asks an agent once more after it has handed over; a model then ends its turn.
        is_over = bool(read) and "Handing off to" in read[-1].text
        text, calls = ("handed over", []) if is_over else self.script.play(self.agent, read, hand_off)
        yield {"messageStart": {"role": "assistant"}}
        if text:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": text}}}
            yield {"contentBlockStop": {}}
        for call in calls:
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": call.id, "name": call.name}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": call.json}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}


def hand_off(target: str) -> Call:
    return Call("handoff_to_agent", {"agent_name": target, "message": "please go on"})


def seen(message: Any) -> Seen:
    texts, calls, answers = [], [], []
    for block in message["content"]:
        texts.append(block.get("text", ""))
        if "toolUse" in block:
            calls.append(block["toolUse"]["toolUseId"])
        if "toolResult" in block:
            answers.append(block["toolResult"]["toolUseId"])
            texts += [part.get("text", "") for part in block["toolResult"]["content"]]
    return Seen("tool" if answers else message["role"], " ".join(filter(None, texts)), tuple(calls), tuple(answers))


def team(script: Script, **options: Any) -> Swarm:
    @tool(context=True)
    async def ask_first(tool_context: ToolContext) -> str:
        """Ask a person."""
        script.act("before")
        answer = tool_context.interrupt("question", reason="go on?")
        script.act("after")
        return f"answered {answer}"

    def agent(name: str, *tools: Any) -> Agent:
        return Agent(name=name, model=ScriptedModel(script, name), tools=[*tools], callback_handler=None)

    triage = agent(TRIAGE, *map(tool, script.tools()), ask_first)
    return Swarm([triage, agent(BILLING), agent(SHIPPING)], entry_point=triage, **options)


def answer_of(result: Any) -> str:
    status = str(result.status.value)
    if status == "failed":
        errors = [each.result for each in result.results.values() if isinstance(each.result, Exception)]
        if errors and isinstance(errors[0], StillRunningError):
            raise errors[0]
        raise StatusFailed(f"the status of the swarm is failed: {errors[:1] or ''}")
    return f"{status}: {result.node_history[-1].node_id if result.node_history else ''}"


class Runner:
    distribution = "strands-agents"
    handoffs = "`Swarm`, `handoff_to_agent`"
    notes: Mapping[str, str] = {
        "target_reads": "the caller writes a message and shared context for the target",
        "two_transfers": "after a handoff the agent is asked once more, which is left out here",
        "ping_pong": "`max_handoffs=20`; a detector of repetitions is off by default",
    }
    missing: Mapping[str, str] = {}

    async def converse(self, script: Script, *messages: str) -> list[str]:
        swarm = team(script)
        return [answer_of(await swarm.invoke_async(message)) for message in messages]

    async def start(self, script: Script, folder: Path) -> None:
        manager = FileSessionManager(session_id="s", storage_dir=str(folder))
        await team(script, session_manager=manager).invoke_async("charge 80")

    async def resume(self, script: Script, folder: Path) -> str:
        manager = FileSessionManager(session_id="s", storage_dir=str(folder))
        swarm = team(script, session_manager=manager)
        answer_of(await swarm.invoke_async("charge 80"))
        return "resumes with the agent that was active"

    async def interrupt(self, script: Script) -> str:
        swarm = team(script)
        result = await swarm.invoke_async("go")
        answers = [{"interruptResponse": {"interruptId": each.id, "response": "yes"}} for each in result.interrupts]
        return answer_of(await swarm.invoke_async(answers))
