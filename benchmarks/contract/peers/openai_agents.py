"""OpenAI Agents SDK: `handoffs=[…]`, a tool for each target, and `SQLiteSession` for conversations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from agents import Agent, Model, ModelResponse, SQLiteSession, Usage, function_tool, set_tracing_disabled
from agents import Runner as AgentsRunner
from benchmarks.contract.case import BILLING, SHIPPING, TRIAGE, Script, Seen

set_tracing_disabled(True)


class ScriptedModel(Model):
    def __init__(self, script: Script, agent: str) -> None:
        self.script = script
        self.agent = agent

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **options: Any) -> ModelResponse:
        items = [{"role": "user", "content": input}] if isinstance(input, str) else input
        text, calls = self.script.play(self.agent, [seen(item) for item in items])
        output: list[Any] = []
        if text:
            content = ResponseOutputText(annotations=[], text=text, type="output_text")
            output.append(
                ResponseOutputMessage(id="m", content=[content], role="assistant", status="completed", type="message")
            )
        output += [
            ResponseFunctionToolCall(call_id=each.id, name=each.name, arguments=each.json, type="function_call")
            for each in calls
        ]
        return ModelResponse(output=output, usage=Usage(requests=1), response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def seen(item: Any) -> Seen:
    kind = item.get("type", "message")
    if kind == "function_call":
        return Seen("assistant", calls=(item["call_id"],))
    if kind == "function_call_output":
        return Seen("tool", str(item["output"]), answers=(item["call_id"],))
    content = item["content"]
    text = content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)
    return Seen(item["role"], text)


def team(script: Script) -> Agent:
    billing = Agent(name=BILLING, model=ScriptedModel(script, BILLING))
    shipping = Agent(name=SHIPPING, model=ScriptedModel(script, SHIPPING))
    triage = Agent(
        name=TRIAGE,
        model=ScriptedModel(script, TRIAGE),
        tools=[function_tool(each) for each in script.tools()],
        handoffs=[billing, shipping],
    )
    billing.handoffs, shipping.handoffs = [triage], [triage]
    return triage


class Runner:
    distribution = "openai-agents"
    handoffs = "`handoffs=[…]`, `SQLiteSession`"

    notes: Mapping[str, str] = {
        "unknown_target": "`RunConfig(tool_not_found_behavior=…)` can tell the model instead",
        "next_message": "passing `result.last_agent` to the next run lets the target answer",
        "crash": "`RunState` is written when a run stops for approval",
    }
    missing: Mapping[str, str] = {
        "interrupt": "a tool can need approval before it is called; it cannot ask while it runs"
    }

    async def converse(self, script: Script, *messages: str) -> list[str]:
        agent, session, answers = team(script), SQLiteSession("s"), []
        for message in messages:
            # The documentation of sessions passes the same agent each time.
            result = await AgentsRunner.run(agent, message, session=session)
            answers.append(str(result.final_output))
        return answers

    async def start(self, script: Script, folder: Path) -> None:
        await AgentsRunner.run(team(script), "charge 80", session=SQLiteSession("s", folder / "s.db"))

    async def resume(self, script: Script, folder: Path) -> str:
        # `RunState` is written when a run is interrupted for approval; after a crash there is the session only.
        session = SQLiteSession("s", folder / "s.db")
        await AgentsRunner.run(team(script), "charge 80", session=session)
        return "no resume: the message is run again"

    async def interrupt(self, script: Script) -> str:
        raise NotImplementedError
