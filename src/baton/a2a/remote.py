"""`RemoteAgent`: an A2A service as an agent for handoffs, tools and workflows."""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from a2a.types.a2a_pb2 import AgentCard, Message, Part, Role
from a2a.utils.errors import A2AError

from ..agents import AgentContext, BaseAgent, HistoryPolicy
from ..errors import RemoteError, RemoteRejectedError, SetupError
from ..events import Action
from ..messages import AssistantMessage, is_empty
from ..models.sdk_clients import PerEventLoop
from .client import A2AServiceClient, Credentials, RemoteTask, parse_parts
from .parts import AUTH_REQUIRED, content_of, to_data_part, to_parts

_logger = logging.getLogger("baton.a2a")
_CANCEL_TIMEOUT = 5.0


class RemoteAgent(BaseAgent[Any, Any]):
    """An agent that runs as an A2A service.

    Its questions become interrupts, whose answers are sent to the service.

    Args:
        url_or_card: The URL of the service, or its agent card.
        name: The agent's name; defaults to that of the card, or one derived from the URL.
        description: The agent's description; defaults to that of the card.
        auth: A bearer token, or a function that returns headers and is called for each request.
        headers: Headers of every request.
        timeout: Seconds without data after which a request fails.
        unavailable_timeout: Seconds that the service may be unavailable before the run fails.
        history: The history that the agent reads.

    Raises:
        SetupError: `url_or_card` is neither an http(s) URL nor an agent card.
    """

    def __init__(
        self,
        url_or_card: str | AgentCard,
        *,
        name: str | None = None,
        description: str = "",
        auth: Credentials | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 600.0,
        unavailable_timeout: float = 60.0,
        history: HistoryPolicy | None = None,
    ) -> None:
        card = url_or_card if isinstance(url_or_card, AgentCard) else None
        if card is None and not urlsplit(str(url_or_card)).scheme.startswith("http"):
            raise SetupError(f"RemoteAgent({url_or_card!r}) needs the URL of a service, http(s)://…, or its agent card")
        super().__init__(
            name or (card.name if card is not None else _name_from_url(str(url_or_card))),
            description=description or (card.description if card is not None else ""),
            history=history,
        )
        self._unavailable_timeout = unavailable_timeout
        make = partial(A2AServiceClient, url_or_card, auth=auth, headers=dict(headers or {}), timeout=timeout)
        self._clients: PerEventLoop[A2AServiceClient] = PerEventLoop(make, A2AServiceClient.close)

    @classmethod
    async def discover(cls, url: str, *, auth: Credentials | None = None, **options: Any) -> "RemoteAgent":
        """Create an agent with the name and description of the service's card.

        Args:
            url: The URL of the service.
            auth: The credentials.
            options: Further options of `RemoteAgent`.

        Raises:
            SetupError: There is no agent card at the URL.
        """
        client = A2AServiceClient(url, auth=auth, headers=options.get("headers") or {}, timeout=30)
        try:
            await client.client()
            assert client.card is not None
            return cls(client.card, auth=auth, **options)
        except A2AError as error:
            raise SetupError(f"could not load an agent card from {url}: {error.message}") from error
        finally:
            await client.close()

    async def close(self) -> None:
        """Close the connections of this event loop; the next run opens new ones."""
        await self._clients.close()

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Send the new messages, raise the service's questions as interrupts, and say its answer.

        Args:
            ctx: The context of the activation.
        """
        task = RemoteTask(self.name, await self._clients.get(), self._unavailable_timeout, ctx.stream_text)
        sent = await ctx.step("a2a.send", partial(self._start, ctx, task))
        if "reply" in sent:
            await ctx.say(content_of(parse_parts(sent["reply"])))
            return None
        while True:
            outcome = await ctx.step("a2a.outcome", partial(self._outcome, ctx, task, sent["task"]))
            if outcome["state"] == "completed":
                await ctx.say(content_of(parse_parts(outcome["parts"])))
                return None
            if outcome["state"] not in ("input_required", "auth_required"):
                raise self._failure(outcome, sent)
            question = _question(self.name, outcome, sent)
            answer = await ctx.interrupt(question, schema=question["schema"])
            await ctx.step("a2a.answer", partial(self._answer, ctx, task, sent, question, answer))

    async def _start(self, ctx: AgentContext[Any], task: RemoteTask) -> dict[str, Any]:
        key = f"a2a.context:{self.name}"
        context_id = str(ctx.values.get(key) or "")
        parts = _unsent_parts(ctx, is_known=bool(context_id))
        if not parts:
            raise RemoteError(self.name, "there is nothing to send: the history has no new messages")
        message = Message(message_id=ctx.idempotency_key, role=Role.ROLE_USER, parts=parts, context_id=context_id)
        sent = await self._send(ctx, task, message)
        if sent.get("context"):
            ctx.values.set(key, sent["context"])
        return sent

    async def _send(self, ctx: AgentContext[Any], task: RemoteTask, message: Message) -> dict[str, Any]:
        # If the run is cancelled meanwhile, wait for the task's id in order to cancel the task.
        sending = asyncio.ensure_future(task.send(message))
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            if ctx._run.signals.stop == "now":
                await asyncio.wait([sending], timeout=_CANCEL_TIMEOUT)
                if sending.done() and not sending.cancelled() and sending.exception() is None:
                    await self._cancel(sending.result().get("task", ""))
            sending.cancel()
            raise

    async def _outcome(self, ctx: AgentContext[Any], task: RemoteTask, task_id: str) -> dict[str, Any]:
        try:
            return await task.outcome(task_id)
        except asyncio.CancelledError:
            # Not if the run is released to another process, which will wait for the task.
            if ctx._run.signals.stop == "now":
                await self._cancel(task_id)
            raise

    async def _cancel(self, task_id: str) -> None:
        if not task_id:
            return
        client = await self._clients.get()
        try:
            async with asyncio.timeout(_CANCEL_TIMEOUT):
                await client.cancel(task_id)
        except (A2AError, TimeoutError) as error:
            _logger.warning(
                "task `%s` of `%s` could not be cancelled and may still be running: %s", task_id, self.name, error
            )

    async def _answer(
        self, ctx: AgentContext[Any], task: RemoteTask, sent: dict[str, Any], question: dict[str, Any], answer: Any
    ) -> None:
        if question["interruptId"]:
            part = to_data_part({"interruptId": question["interruptId"], "answer": answer})
        else:
            part = Part(text=answer) if isinstance(answer, str) else to_data_part(answer)
        id = f"{sent['task']}:{question['interruptId'] or question['question']}"
        message = Message(message_id=id, role=Role.ROLE_USER, parts=[part])
        message.task_id, message.context_id = sent["task"], sent["context"]
        await self._send(ctx, task, message)

    def _failure(self, outcome: dict[str, Any], sent: dict[str, Any]) -> RemoteError:
        state = outcome["state"]
        kind = RemoteRejectedError if state == "rejected" else RemoteError
        details = f": {outcome['said']}" if outcome["said"] else ""
        return kind(self.name, f"the task is {state}{details}", task_id=sent["task"], state=state)


def _question(agent: str, outcome: dict[str, Any], sent: dict[str, Any]) -> dict[str, Any]:
    """Return the first open question; the others follow when it is answered."""
    questions: list[Any] = outcome["questions"]
    known: list[dict[str, Any]] = [item for item in questions if isinstance(item, dict) and "interruptId" in item]
    raised = known[0] if known else {}
    first = outcome["said"].split("\n")[0] if len(known) > 1 else outcome["said"]
    return {
        "kind": AUTH_REQUIRED if outcome["state"] == "auth_required" else "a2a",
        "agent": agent,
        "question": first,
        "taskId": sent["task"],
        "contextId": sent["context"],
        "interruptId": raised.get("interruptId", ""),
        "payload": raised.get("payload"),
        "schema": schema if isinstance(schema := raised.get("schema"), dict) else None,
    }


def _unsent_parts(ctx: AgentContext[Any], *, is_known: bool) -> list[Part]:
    """Return the messages that the service has not received."""
    messages: Sequence[Any] = ctx.messages()
    own = [index for index, message in enumerate(messages) if isinstance(message, AssistantMessage)]
    if is_known and own and own[-1] + 1 < len(messages):
        messages = messages[own[-1] + 1 :]
    parts: list[Part] = []
    for message in messages:
        if not is_empty(message) and not getattr(message, "tool_calls", ()):
            parts.extend(to_parts(message.content))
    return parts


def _name_from_url(url: str) -> str:
    parts = urlsplit(url)
    return re.sub(r"\W+", "-", f"{parts.netloc}{parts.path}").strip("-")
