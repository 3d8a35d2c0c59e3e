"""OpenAI Swarm, as `openai-swarm` on PyPI: functions that return an agent, and a scripted client."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from openai.types.chat import ChatCompletionMessage

from benchmarks.contract.case import BILLING, SHIPPING, TRIAGE, Script, Seen
from swarm import Agent, Swarm


class ScriptedClient:
    """Has `chat.completions.create`, the only method that Swarm calls."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self.create))

    def create(self, **params: Any) -> Any:
        text, calls = self.script.play(params["model"], [seen(each) for each in params["messages"]])
        made = [call.chat for call in calls]
        message = ChatCompletionMessage(role="assistant", content=text or None, tool_calls=made or None)
        return SimpleNamespace(choices=[SimpleNamespace(message=message)])


def seen(message: dict[str, Any]) -> Seen:
    calls = tuple(call["id"] for call in message.get("tool_calls") or ())
    answers = (message["tool_call_id"],) if message["role"] == "tool" else ()
    return Seen(message["role"], message.get("content") or "", calls, answers)


def team(script: Script) -> Agent:
    def transfer_to_billing() -> Agent:
        return billing

    def transfer_to_shipping() -> Agent:
        return shipping

    def transfer_to_triage() -> Agent:
        return triage

    # The scripted client knows the agent by the name of its model.
    billing = Agent(name=BILLING, model=BILLING, functions=[transfer_to_triage])
    shipping = Agent(name=SHIPPING, model=SHIPPING, functions=[transfer_to_triage])
    functions = [script.look_up, script.reserve, script.charge, transfer_to_billing, transfer_to_shipping]
    triage = Agent(name=TRIAGE, model=TRIAGE, functions=functions)
    return triage


class Runner:
    distribution = "openai-swarm"
    handoffs = "functions that return an agent"
    notes: Mapping[str, str] = {
        "next_message": "the caller passes `response.agent` and `response.messages`, as in its REPL"
    }
    missing: Mapping[str, str] = {"interrupt": "a run cannot be suspended", "crash": "it stores nothing"}

    async def converse(self, script: Script, *messages: str) -> list[str]:
        client, agent, history, answers = Swarm(client=ScriptedClient(script)), team(script), [], []
        for message in messages:
            history.append({"role": "user", "content": message})
            response = client.run(agent=agent, messages=history)
            history, agent = [*history, *response.messages], response.agent
            answers.append(history[-1]["content"])
        return answers

    async def start(self, script: Script, folder: Path) -> None:
        raise NotImplementedError

    async def resume(self, script: Script, folder: Path) -> str:
        raise NotImplementedError

    async def interrupt(self, script: Script) -> str:
        raise NotImplementedError
