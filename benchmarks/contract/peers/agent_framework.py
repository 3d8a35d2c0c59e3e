"""Microsoft Agent Framework: `HandoffBuilder`, which gives each agent a tool for each target, and file checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FileCheckpointStorage,
    FunctionInvocationLayer,
    Message,
    tool,
)
from agent_framework.orchestrations import HandoffAgentUserRequest, HandoffBuilder

from benchmarks.contract.case import BILLING, SHIPPING, TRIAGE, Call, Script, Seen

logging.disable(logging.ERROR)


class ScriptedClient(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    def __init__(self, script: Script, agent: str) -> None:
        super().__init__()
        self.script = script
        self.agent = agent

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **more: Any) -> Any:
        async def respond() -> ChatResponse:
            read = [seen(message) for message in messages]
            text, calls = self.script.play(self.agent, read, lambda target: Call(f"handoff_to_{target}"))
            contents: list[Any] = [text] if text else []
            contents += [
                Content.from_function_call(call_id=each.id, name=each.name, arguments=each.json) for each in calls
            ]
            return ChatResponse(messages=[Message(role="assistant", contents=contents)])

        return respond()


def seen(message: Message) -> Seen:
    texts, calls, answers = [message.text], [], []
    for content in message.contents:
        if content.type == "function_call":
            calls.append(content.call_id)
        if content.type == "function_result":
            answers.append(content.call_id)
            texts.append(str(content.result))
    return Seen(str(message.role), " ".join(filter(None, texts)), tuple(calls), tuple(answers))


def team(script: Script, **options: Any) -> Any:
    tools = [tool(approval_mode="never_require")(each) for each in script.tools()]

    def agent(name: str, *tools: Any) -> Agent:
        return Agent(
            client=ScriptedClient(script, name),
            id=name,
            name=name,
            tools=[*tools],
            require_per_service_call_history_persistence=True,
        )

    triage, billing, shipping = agent(TRIAGE, *tools), agent(BILLING), agent(SHIPPING)
    builder = HandoffBuilder(name="desk", participants=[triage, billing, shipping], **options)
    builder = builder.with_start_agent(triage).add_handoff(triage, [billing, shipping])
    return builder.add_handoff(billing, [triage]).add_handoff(shipping, [triage]).build()


def open_requests(result: Any) -> list[Any]:
    return [each for each in result.get_request_info_events() if isinstance(each.data, HandoffAgentUserRequest)]


class Runner:
    distribution = "agent-framework-core"
    handoffs = "`HandoffBuilder`"
    notes: Mapping[str, str] = {
        "two_tools_two_transfers": "the model is asked for one call at a time (`allow_multiple_tool_calls=False`)",
    }
    missing: Mapping[str, str] = {
        "interrupt": "a tool can need approval before it is called; `UserInputRequiredException` passes on requests of "
        "a nested agent, but a tool cannot read an answer",
    }

    async def converse(self, script: Script, *messages: str) -> list[str]:
        workflow, answers, asked = team(script), [], []
        for message in messages:
            if asked:
                response = HandoffAgentUserRequest.create_response(message)
                result = await workflow.run(responses={asked[-1].request_id: response})
            else:
                result = await workflow.run(message)
            asked = open_requests(result)
            answers.append(str(result.get_final_state()))
        return answers

    async def start(self, script: Script, folder: Path) -> None:
        await team(script, checkpoint_storage=FileCheckpointStorage(str(folder / "c"))).run("charge 80")

    async def resume(self, script: Script, folder: Path) -> str:
        storage = FileCheckpointStorage(str(folder / "c"))
        workflow = team(script, checkpoint_storage=storage)
        stored = await storage.get_latest(workflow_name="desk")
        if stored is None:
            await workflow.run("charge 80")
            return "no checkpoint was written yet: the message is run again"
        await workflow.run(checkpoint_id=stored.checkpoint_id)
        return "resumes from the checkpoint"

    async def interrupt(self, script: Script) -> str:
        raise NotImplementedError
