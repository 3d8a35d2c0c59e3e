"""A service that speaks A2A as an agent: transfer to it, call it as a tool, put it into a workflow."""

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
from .client import A2AServiceClient, Credentials, RemoteTask, parts_from
from .parts import AUTH_REQUIRED, content_of, data_part, parts_of

_logger = logging.getLogger("baton.a2a")
_CANCEL_SECONDS = 5.0


class RemoteAgent(BaseAgent[Any, Any]):
    """An agent that lives elsewhere. What it asks is asked here; what it is answered here is sent there."""

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
        """`where` is the service's address or its card. `timeout` is for how many seconds it may say nothing.

        `patience` is for how many seconds it may be away before that is an error.
        """
        card = url_or_card if isinstance(url_or_card, AgentCard) else None
        if card is None and not urlsplit(str(url_or_card)).scheme.startswith("http"):
            raise SetupError(
                f"RemoteAgent({url_or_card!r}) wants the address of a service, http(s)://…, or its agent card"
            )
        super().__init__(
            name or (card.name if card is not None else _name_from(str(url_or_card))),
            description=description or (card.description if card is not None else ""),
            history=history,
        )
        self._patience = unavailable_timeout
        make = partial(A2AServiceClient, url_or_card, auth=auth, headers=dict(headers or {}), timeout=timeout)
        self._links: PerEventLoop[A2AServiceClient] = PerEventLoop(make, A2AServiceClient.close)

    @classmethod
    async def discover(cls, url: str, *, auth: Credentials | None = None, **options: Any) -> "RemoteAgent":
        """The agent at an address, with the name and the description that its card has."""
        link = A2AServiceClient(url, auth=auth, headers=options.get("headers") or {}, timeout=30)
        try:
            await link.client()
            assert link.card is not None
            return cls(link.card, auth=auth, **options)
        except A2AError as error:
            raise SetupError(f"there is no agent card at {url}: {error.message}") from error
        finally:
            await link.close()

    async def close(self) -> None:
        """Close the connections of this event loop; the next message opens new ones."""
        await self._links.close()

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Send what was said, listen, pass questions on, and say what comes of it."""
        visit = RemoteTask(self.name, await self._links.get(), self._patience, ctx.stream_text)
        sent = await ctx.step("a2a.send", partial(self._begin, ctx, visit))
        if "reply" in sent:
            await ctx.say(content_of(parts_from(sent["reply"])))
            return None
        while True:
            outcome = await ctx.step("a2a.outcome", partial(self._outcome, ctx, visit, sent["task"]))
            if outcome["state"] == "completed":
                await ctx.say(content_of(parts_from(outcome["parts"])))
                return None
            if outcome["state"] not in ("input_required", "auth_required"):
                raise self._failure(outcome, sent)
            question = _question(self.name, outcome, sent)
            answer = await ctx.interrupt(question, schema=question["schema"])
            await ctx.step("a2a.answer", partial(self._answer, ctx, visit, sent, question, answer))

    async def _begin(self, ctx: AgentContext[Any], visit: RemoteTask) -> dict[str, Any]:
        memory = f"a2a.context:{self.name}"
        context_id = str(ctx.values.get(memory) or "")
        parts = _since_my_words(ctx, is_known=bool(context_id))
        if not parts:
            raise RemoteError(self.name, "there is nothing to send to it: nothing was said before it got the floor")
        message = Message(message_id=ctx.idempotency_key, role=Role.ROLE_USER, parts=parts, context_id=context_id)
        sent = await self._sent(ctx, visit, message)
        if sent.get("context"):
            ctx.values.set(memory, sent["context"])
        return sent

    async def _sent(self, ctx: AgentContext[Any], visit: RemoteTask, message: Message) -> dict[str, Any]:
        """Send a message. If that is cancelled, the task's id is waited for all the same: it is to be cancelled."""
        sending = asyncio.ensure_future(visit.send(message))
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            if ctx._run.signals.stop == "now":
                await asyncio.wait([sending], timeout=_CANCEL_SECONDS)
                if sending.done() and not sending.cancelled() and sending.exception() is None:
                    await self._cancel(sending.result().get("task", ""))
            sending.cancel()
            raise

    async def _outcome(self, ctx: AgentContext[Any], visit: RemoteTask, task_id: str) -> dict[str, Any]:
        try:
            return await visit.outcome(task_id)
        except asyncio.CancelledError:
            # Not if the run is only left to another process: that one goes on listening.
            if ctx._run.signals.stop == "now":
                await self._cancel(task_id)
            raise

    async def _cancel(self, task_id: str) -> None:
        if not task_id:
            return
        link = await self._links.get()
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):
                await link.cancel(task_id)
        except (A2AError, TimeoutError) as error:
            _logger.warning(
                "the task `%s` of `%s` may go on: it could not be cancelled (%s)", task_id, self.name, error
            )

    async def _answer(
        self, ctx: AgentContext[Any], visit: RemoteTask, sent: dict[str, Any], question: dict[str, Any], answer: Any
    ) -> None:
        if question["interruptId"]:
            part = data_part({"interruptId": question["interruptId"], "answer": answer})
        else:
            part = Part(text=answer) if isinstance(answer, str) else data_part(answer)
        id = f"{sent['task']}:{question['interruptId'] or question['question']}"
        message = Message(message_id=id, role=Role.ROLE_USER, parts=[part])
        message.task_id, message.context_id = sent["task"], sent["context"]
        await self._sent(ctx, visit, message)

    def _failure(self, outcome: dict[str, Any], sent: dict[str, Any]) -> RemoteError:
        state = outcome["state"]
        kind = RemoteRejectedError if state == "rejected" else RemoteError
        said = f": {outcome['said']}" if outcome["said"] else ""
        return kind(self.name, f"its task is {state}{said}", task_id=sent["task"], state=state)


def _question(agent: str, outcome: dict[str, Any], sent: dict[str, Any]) -> dict[str, Any]:
    """The first of the questions that are open there; the others are asked when it is answered."""
    questions: list[Any] = outcome["questions"]
    known: list[dict[str, Any]] = [each for each in questions if isinstance(each, dict) and "interruptId" in each]
    asked = known[0] if known else {}
    first = outcome["said"].split("\n")[0] if len(known) > 1 else outcome["said"]
    return {
        "kind": AUTH_REQUIRED if outcome["state"] == "auth_required" else "a2a",
        "agent": agent,
        "question": first,
        "taskId": sent["task"],
        "contextId": sent["context"],
        "interruptId": asked.get("interruptId", ""),
        "payload": asked.get("payload"),
        "schema": schema if isinstance(schema := asked.get("schema"), dict) else None,
    }


def _since_my_words(ctx: AgentContext[Any], *, is_known: bool) -> list[Part]:
    """What the other side has not read yet: all of it if it does not know us, else what came after its own words."""
    messages: Sequence[Any] = ctx.messages()
    own = [number for number, each in enumerate(messages) if isinstance(each, AssistantMessage)]
    if is_known and own and own[-1] + 1 < len(messages):
        messages = messages[own[-1] + 1 :]
    parts: list[Part] = []
    for message in messages:
        if not is_empty(message) and not getattr(message, "tool_calls", ()):
            parts.extend(parts_of(message.content))
    return parts


def _name_from(url: str) -> str:
    parts = urlsplit(url)
    return re.sub(r"\W+", "-", f"{parts.netloc}{parts.path}").strip("-")
