"""What a server asks while it carries out a call: something of a person, of a model, or which folders it may use."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import mcp_types as types

from ...agents import AgentContext
from ...agents.manner import CompiledAgent
from ...context import RunContext
from ...messages import AssistantMessage, Message, UserMessage, text_of
from ...models import ModelRequest, ModelSettings, collect_response
from .convert import part_of
from .flights import refusal

ELICITATION = "elicitation"
"""The kind of question that a server's is."""


class ServerRequestHandler:
    """Answers for one call, in the run that the call is made in."""

    def __init__(
        self, ctx: RunContext[Any], server: str, tool: str, *, roots: tuple[types.Root, ...], sampling: bool
    ) -> None:
        self._ctx = ctx
        self._server = server
        self._tool = tool
        self._roots = roots
        self._sampling = sampling

    async def answer(self, request: types.InputRequest) -> types.InputResponse | types.ErrorData:
        """The answer; a person's is waited for by suspending the run."""
        match request:
            case types.ElicitRequest(params=params):
                return await self._elicited(params)
            case types.CreateMessageRequest(params=params):
                return await self._sampled(params)
            case types.ListRootsRequest():
                return types.ListRootsResult(roots=list(self._roots))

    async def _elicited(self, params: types.ElicitRequestParams) -> types.ElicitResult:
        question: dict[str, Any] = {
            "kind": ELICITATION,
            "server": self._server,
            "tool": self._tool,
            "message": params.message,
        }
        if isinstance(params, types.ElicitRequestURLParams):
            agrees = await self._ctx.interrupt({**question, "url": params.url}, schema={"type": "boolean"})
            return types.ElicitResult(action="accept" if agrees else "decline")
        # Whoever does not want to say answers False.
        wanted: dict[str, Any] = {"anyOf": [dict(params.requested_schema), {"const": False}]}
        answer = await self._ctx.interrupt(question, schema=wanted)
        if answer is False:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={**_defaults(params.requested_schema), **answer})

    async def _sampled(self, params: types.CreateMessageRequestParams) -> types.CreateMessageResult | types.ErrorData:
        if not self._sampling:
            return refusal(f"{self._server} may not ask the model: MCPToolset(…, sampling=True) would allow it")
        if params.tools:
            return refusal("sampling with tools is not supported here")
        manner = _manner_of(self._ctx)
        if manner is None:
            return refusal("there is no model to ask")
        said = await self._ctx.step("sampling", partial(self._ask_model, params, manner))
        return types.CreateMessageResult.model_validate(said)

    async def _ask_model(self, params: types.CreateMessageRequestParams, manner: CompiledAgent) -> dict[str, Any]:
        ctx, settings = self._ctx, ModelSettings(max_tokens=params.max_tokens, temperature=params.temperature)
        stop = tuple(params.stop_sequences) if params.stop_sequences else None
        settings = manner.settings.merge(settings).merge(ModelSettings(stop_sequences=stop))
        request = ModelRequest(
            [_message_of(message) for message in params.messages],
            params.system_prompt or "",
            settings=settings,
            agent=ctx.agent,
        )
        ctx._run.meter.start_model_call(ctx._origin)
        response = await collect_response(manner.model.respond(request), manner.model.name)
        if response.usage is not None:
            ctx._run.meter.add_usage(response.usage, ctx._origin)
        text = text_of(response.message.content) if response.message is not None else ""
        result = types.CreateMessageResult(
            role="assistant",
            content=types.TextContent(text=text),
            model=response.model or manner.model.name,
            stop_reason="maxTokens" if response.stop_reason == "length" else "endTurn",
        )
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)


def _defaults(form: Mapping[str, Any]) -> dict[str, Any]:
    """What a form says by itself in the fields that a person leaves as they are."""
    fields: dict[str, dict[str, Any]] = form.get("properties", {})
    return {name: field["default"] for name, field in fields.items() if "default" in field}


def _manner_of(ctx: RunContext[Any]) -> CompiledAgent | None:
    caller = ctx._caller
    return caller._options.compiled_agents.get(ctx.agent) if isinstance(caller, AgentContext) else None


def _message_of(message: types.SamplingMessage) -> Message:
    blocks = [
        block
        for block in message.content_as_list
        if isinstance(block, types.TextContent | types.ImageContent | types.AudioContent)
    ]
    content = tuple([part_of(block) for block in blocks])
    return UserMessage(content) if message.role == "user" else AssistantMessage(content)
