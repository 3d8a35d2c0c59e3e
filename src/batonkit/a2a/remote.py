"""`RemoteAgent`: an A2A service as an agent for handoffs, tools and workflows."""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from a2a.types.a2a_pb2 import AgentCard, Message, Part, Role
from a2a.utils.errors import A2AError

from .._checks import check_arguments
from .._wording import show
from ..agents import AgentContext, BaseAgent, HistoryPolicy
from ..context.values import THREAD_PREFIX
from ..errors import RemoteError, RemoteRejectedError, SetupError
from ..log import Action
from ..log.events import payload_fields
from ..messages import AssistantMessage, is_empty
from ..messages import Message as ConversationMessage
from ..models.sdk_clients import PerEventLoop
from .a2a_client import A2AServiceClient, Credentials, origin_of
from .parts import AUTH_REQUIRED, content_of, to_data_part, to_parts
from .remote_task import RemoteTask, parse_parts

_logger = logging.getLogger("baton.a2a")
_CANCEL_TIMEOUT = 5.0
_MAX_NAME = 64
_MAX_DESCRIPTION = 500


class RemoteAgent(BaseAgent[Any, Any]):
    """An agent that runs as an A2A service.

    Its questions become interrupts, whose answers are sent to the service.

    Args:
        url_or_card: The URL of the service, or its agent card.
        name: The agent's name; defaults to that of the card, or one derived from the URL.
        description: The agent's description; defaults to that of the card, at most 500 characters of it, quoted as the
            service's own words.
        auth: A bearer token, or a function that returns headers and is called for each request.
        headers: Headers of every request.
        trusted_origins: The origins, besides that of the URL, that get `auth` and `headers` if the agent card names
            them: `["https://agents.example.com"]`. A card that you pass has no URL, so it needs them.
        timeout: Seconds without data after which a request fails.
        unavailable_timeout: Seconds that the service may be unavailable before the run fails.
        history: The messages that are sent: by default user input and the answers of agents. `"rewritten"` sends the
            tool calls and results of other agents as well.

    Raises:
        SetupError: `url_or_card` is neither an http(s) URL nor an agent card, the card's name cannot be used, or
            credentials for a card have no trusted origin.
    """

    history: HistoryPolicy | None = "answers"
    _is_remote = True

    @check_arguments
    def __init__(
        self,
        url_or_card: str | AgentCard,
        *,
        name: str | None = None,
        description: str = "",
        auth: Credentials | None = None,
        headers: Mapping[str, str] | None = None,
        trusted_origins: Sequence[str] = (),
        timeout: float = 600.0,
        unavailable_timeout: float = 60.0,
        history: HistoryPolicy | None = None,
    ) -> None:
        card = url_or_card if isinstance(url_or_card, AgentCard) else None
        if card is None and not (str(url_or_card).startswith(("http://", "https://")) and origin_of(str(url_or_card))):
            raise SetupError(f"RemoteAgent({url_or_card!r}) needs the URL of a service, http(s)://…, or its agent card")
        super().__init__(
            name or (_name_from_card(card) if card is not None else _name_from_url(str(url_or_card))),
            description=description or (_description_from_card(card) if card is not None else ""),
            history=history,
        )
        self._unavailable_timeout = unavailable_timeout
        _check_origins(trusted_origins)
        if card is not None and (auth is not None or headers) and not trusted_origins:
            named = sorted({origin_of(each.url) or each.url for each in card.supported_interfaces})
            raise SetupError(
                f"RemoteAgent(card, auth=…) of `{self.name}` would send the credentials wherever the card says; pass "
                f"the URL of the service instead, or trusted_origins={named} if these are the service's own"
            )
        make = partial(
            A2AServiceClient,
            url_or_card,
            auth=auth,
            headers=dict(headers or {}),
            timeout=timeout,
            trusted_origins=tuple(trusted_origins),
        )
        self._clients: PerEventLoop[A2AServiceClient] = PerEventLoop(make, A2AServiceClient.close)

    @classmethod
    async def discover(
        cls,
        url: str,
        *,
        name: str | None = None,
        description: str = "",
        auth: Credentials | None = None,
        headers: Mapping[str, str] | None = None,
        trusted_origins: Sequence[str] = (),
        timeout: float = 600.0,
        unavailable_timeout: float = 60.0,
        history: HistoryPolicy | None = None,
    ) -> "RemoteAgent":
        """Create an agent with the name and description of the service's card.

        Args:
            url: The URL of the service.
            name: Another name than that of the card.
            description: Another description than that of the card.
            auth: A bearer token, or a function that returns headers and is called for each request.
            headers: Headers of every request.
            trusted_origins: The origins, besides that of `url`, that get `auth` and `headers`.
            timeout: Seconds without data after which a request fails.
            unavailable_timeout: Seconds that the service may be unavailable before the run fails.
            history: The messages that are sent: by default user input and the answers of agents.

        Raises:
            SetupError: There is no agent card at the URL, or it names origins that are not trusted.
        """
        _check_origins(trusted_origins)
        client = A2AServiceClient(url, auth=auth, headers=headers or {}, timeout=30, trusted_origins=trusted_origins)
        try:
            await client.client()
            assert client.card is not None
            return cls(
                client.card,
                name=name,
                description=description,
                auth=auth,
                headers=headers,
                trusted_origins=(url, *trusted_origins),
                timeout=timeout,
                unavailable_timeout=unavailable_timeout,
                history=history,
            )
        except A2AError as error:
            raise SetupError(f"could not use the agent card from {url}: {error.message}") from error
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
            return await self._say(ctx, sent["reply"])
        while True:
            outcome = await ctx.step("a2a.outcome", partial(self._outcome, ctx, task, sent["task"]))
            if outcome["state"] == "completed":
                return await self._say(ctx, outcome["parts"])
            if outcome["state"] not in ("input_required", "auth_required"):
                raise self._failure(outcome, sent)
            question = _question(self.name, outcome, sent)
            try:
                answer = await ctx.interrupt(question, schema=question["schema"])
            except SetupError as error:
                raise RemoteError(self.name, f"its question cannot be asked: {error}", task_id=sent["task"]) from None
            await ctx.step("a2a.answer", partial(self._answer, ctx, task, sent, question, answer))

    @property
    def _conversation_key(self) -> str:
        """The key of the value that holds the context and the last message of a thread."""
        return f"{THREAD_PREFIX}a2a:{self.name}"

    def _conversation(self, ctx: AgentContext[Any]) -> tuple[str, str]:
        """Return the id of the context and the digest of its last message; empty if unknown."""
        fields = payload_fields(ctx.values.get(self._conversation_key))
        return str(fields.get("context") or ""), str(fields.get("last") or "")

    async def _start(self, ctx: AgentContext[Any], task: RemoteTask) -> dict[str, Any]:
        context_id, last = self._conversation(ctx)
        unsent = _unsent(ctx.messages(), last) if context_id else [*ctx.messages()]
        unsent = [each for each in unsent if not is_empty(each) and not getattr(each, "tool_calls", ())]
        if not unsent:
            raise RemoteError(self.name, "there is nothing to send: the history has no messages")
        parts = [part for each in unsent for part in to_parts(each.content)]
        message = Message(message_id=ctx.idempotency_key, role=Role.ROLE_USER, parts=parts, context_id=context_id)
        sent = await self._send(ctx, task, message)
        if sent["context"]:
            ctx.values.set(self._conversation_key, {"context": sent["context"], "last": _digest(unsent[-1])})
        return sent

    async def _say(self, ctx: AgentContext[Any], parts: list[dict[str, Any]]) -> None:
        content = content_of(parse_parts(parts))
        context_id, _ = self._conversation(ctx)
        if context_id and content:
            last = _digest(AssistantMessage(content))
            ctx.values.set(self._conversation_key, {"context": context_id, "last": last})
        await ctx.say(content)

    async def _send(self, ctx: AgentContext[Any], task: RemoteTask, message: Message) -> dict[str, Any]:
        # If the run is cancelled during the request, wait for the task's id in order to cancel the task.
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
            message = "task `%s` of `%s` could not be cancelled and may still be running: %s"
            _logger.warning(message, task_id, self.name, error)

    async def _answer(
        self, ctx: AgentContext[Any], task: RemoteTask, sent: dict[str, Any], question: dict[str, Any], answer: Any
    ) -> None:
        if question["interruptId"]:
            part = to_data_part({"interruptId": question["interruptId"], "answer": answer})
        else:
            part = Part(text=answer) if isinstance(answer, str) else to_data_part(answer)
        id = f"{sent['task']}:{question['interruptId'] or question['question']}"
        message = Message(message_id=id, role=Role.ROLE_USER, parts=[part])
        message.task_id = sent["task"]
        message.context_id = sent["context"]
        await self._send(ctx, task, message)

    def _failure(self, outcome: dict[str, Any], sent: dict[str, Any]) -> RemoteError:
        state = outcome["state"]
        kind = RemoteRejectedError if state == "rejected" else RemoteError
        details = f": {outcome['said']}" if outcome["said"] else ""
        return kind(self.name, f"the task is {state}{details}", task_id=sent["task"], state=state)


def _check_origins(origins: Any) -> None:
    if isinstance(origins, str) or not all(isinstance(each, str) and origin_of(each) for each in origins):
        raise SetupError(f"trusted_origins={origins!r} must be a list of origins such as 'https://agents.example.com'")


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


def _unsent(messages: Sequence[ConversationMessage], last: str) -> Sequence[ConversationMessage]:
    """Return the messages that the service has not received, or else the last request."""
    backwards = range(len(messages) - 1, -1, -1)
    known = next((index for index in backwards if _digest(messages[index]) == last), None)
    if known is None:
        # The history has been trimmed or filtered since. Own messages are those that are not rewritten.
        known = next((index for index in backwards if isinstance(messages[index], AssistantMessage)), -1)
    requests = [each for each in messages if not isinstance(each, AssistantMessage) and not is_empty(each)]
    return messages[known + 1 :] or requests[-1:]


def _digest(message: ConversationMessage) -> str:
    digest = sha256(type(message).__name__.encode())
    for part in to_parts(message.content):
        digest.update(part.SerializeToString(deterministic=True))
    return digest.hexdigest()[:32]


def _name_from_card(card: AgentCard) -> str:
    if not card.name.strip() or len(card.name) > _MAX_NAME or not card.name.isprintable():
        works = f"1 to {_MAX_NAME} printable characters; pass name=… to choose one yourself"
        raise SetupError(f"RemoteAgent(…) cannot use the name of the agent card, {show(card.name)}: it must be {works}")
    return card.name


def _description_from_card(card: AgentCard) -> str:
    """Return the card's description as a quotation, which other agents read in their prompts."""
    printable = "".join([each if each.isprintable() else " " for each in card.description])
    text = " ".join(printable.split()).replace('"', "'")
    if len(text) > _MAX_DESCRIPTION:
        text = text[: _MAX_DESCRIPTION - 1] + "…"
    return f'A remote service, which says of itself: "{text}"' if text else ""


def _name_from_url(url: str) -> str:
    parts = urlsplit(url)
    return re.sub(r"\W+", "-", f"{parts.netloc}{parts.path}").strip("-")
