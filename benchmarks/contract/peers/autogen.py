"""AutoGen AgentChat: `Swarm` with `handoffs=[…]`, which stops at an answer in text."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.teams import Swarm
from autogen_core import FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, ModelFamily, ModelInfo, RequestUsage

from benchmarks.contract.case import BILLING, SHIPPING, TRIAGE, Script, Seen

logging.disable(logging.ERROR)
USAGE = RequestUsage(prompt_tokens=0, completion_tokens=0)


class ScriptedModel(ChatCompletionClient):
    def __init__(self, script: Script, agent: str) -> None:
        self.script = script
        self.agent = agent

    async def create(self, messages: Any, **options: Any) -> CreateResult:
        text, calls = self.script.play(self.agent, [each for message in messages for each in seen(message)])
        made = [FunctionCall(id=call.id, name=call.name, arguments=call.json) for call in calls]
        return CreateResult(
            finish_reason="function_calls" if made else "stop",
            content=made or text,
            thought=text if made and text else None,
            usage=USAGE,
            cached=False,
        )

    def create_stream(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        pass

    def actual_usage(self) -> RequestUsage:
        return USAGE

    def total_usage(self) -> RequestUsage:
        return USAGE

    def count_tokens(self, *args: Any, **options: Any) -> int:
        return 0

    def remaining_tokens(self, *args: Any, **options: Any) -> int:
        return 1_000_000

    @property
    def capabilities(self) -> Any:
        return self.model_info

    @property
    def model_info(self) -> ModelInfo:
        return ModelInfo(
            vision=False, function_calling=True, json_output=False, family=ModelFamily.UNKNOWN, structured_output=False
        )


def seen(message: Any) -> list[Seen]:
    if message.type == "FunctionExecutionResultMessage":
        return [Seen("tool", each.content, answers=(each.call_id,)) for each in message.content]
    role = {"UserMessage": "user", "AssistantMessage": "assistant"}.get(message.type, "system")
    if isinstance(message.content, str):
        return [Seen(role, message.content)]
    return [Seen(role, getattr(message, "thought", "") or "", tuple(call.id for call in message.content))]


def team(script: Script) -> Swarm:
    def agent(name: str, handoffs: list[str], *tools: Any) -> AssistantAgent:
        return AssistantAgent(name, ScriptedModel(script, name), tools=[*tools], handoffs=handoffs)

    agents = [
        agent(TRIAGE, [BILLING, SHIPPING], *script.tools()),
        agent(BILLING, [TRIAGE]),
        agent(SHIPPING, [TRIAGE]),
    ]
    # Without a source, the task itself would stop the team.
    first, *others = [TextMessageTermination(source=each.name) for each in agents]
    for other in others:
        first = first | other
    return Swarm(agents, termination_condition=first)


class Runner:
    distribution = "autogen-agentchat"
    handoffs = "`Swarm`, `handoffs=[…]`"
    notes: Mapping[str, str] = {
        "ping_pong": "`max_turns` and termination conditions are options",
        "crash": "state can be saved between runs",
    }
    missing: Mapping[str, str] = {
        "interrupt": "a team can hand over to a user and stop; a tool cannot ask while it runs"
    }

    async def converse(self, script: Script, *messages: str) -> list[str]:
        swarm = team(script)
        return [str((await swarm.run(task=message)).messages[-1].to_text()) for message in messages]

    async def start(self, script: Script, folder: Path) -> None:
        swarm = team(script)
        await swarm.run(task="charge 80")
        (folder / "state.json").write_text(json.dumps(await swarm.save_state()))

    async def resume(self, script: Script, folder: Path) -> str:
        stored, swarm = folder / "state.json", team(script)
        if stored.exists():
            await swarm.load_state(json.loads(stored.read_text()))
        await swarm.run(task="charge 80")
        return "resumes from the saved state" if stored.exists() else "no resume: the message is run again"

    async def interrupt(self, script: Script) -> str:
        raise NotImplementedError
