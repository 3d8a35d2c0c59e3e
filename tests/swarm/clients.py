"""A scripted client with the interface of OpenAI's: its responses are dumpable objects, whole or in chunks."""

import copy
import json
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, TypeAlias

from batonkit.swarm import Agent, Response, Swarm


class Dumpable(SimpleNamespace):
    """A namespace that can be dumped like the SDK's models."""

    def model_dump_json(self) -> str:
        return json.dumps(self, default=vars)


class Reply:
    """The contents of an assistant's message."""

    def __init__(self, content: str | None = None, *calls: Dumpable, **more: Any) -> None:
        self.content = content
        self.calls = calls
        self.more = more


Answer: TypeAlias = str | Dumpable | Reply | Exception | list[Any]
"""Text, a call, a reply with both, an error to raise, or the chunks of a stream."""


def call(name: str, id: str | None = "", /, **arguments: Any) -> Dumpable:
    """Create a function call; the client numbers calls without an id."""
    return raw_call(name, json.dumps(arguments), id)


def raw_call(name: str, arguments: Any, id: str | None = "") -> Dumpable:
    """Create a call with unparsed arguments."""
    return Dumpable(id=id, function=Dumpable(name=name, arguments=arguments), type="function")


def chunk(**delta: Any) -> Dumpable:
    """Create one chunk of a stream."""
    return Dumpable(choices=[Dumpable(delta=Dumpable(**{"role": None, "content": None, "tool_calls": None, **delta}))])


class Client:
    """A client with `chat.completions.create` that records its requests in `requests`."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self._calls = 0
        self.requests: list[dict[str, Any]] = []
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._create))
        self.pulled = 0
        """The number of chunks that were read."""
        self.is_closed = False

    @property
    def models(self) -> list[str]:
        return [request["model"] for request in self.requests]

    @property
    def prompts(self) -> list[str]:
        """Return the system prompt of each request."""
        return [request["messages"][0]["content"] for request in self.requests]

    def _create(self, **request: Any) -> Any:
        self.requests.append(copy.deepcopy(request))
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, list):
            return self._stream(answer)
        reply = _as_reply(answer)
        for each in reply.calls:
            if each.id == "":
                self._calls += 1
                each.id = f"call_{self._calls}"
        return self._stream(_chunks_of(reply)) if request["stream"] else _completion(reply)

    def _stream(self, chunks: Iterable[Any]) -> Iterator[Any]:
        try:
            for each in chunks:
                self.pulled += 1
                yield each
        finally:
            self.is_closed = True


def _as_reply(answer: str | Dumpable | Reply) -> Reply:
    if isinstance(answer, Reply):
        return answer
    return Reply(answer) if isinstance(answer, str) else Reply(None, answer)


def _completion(reply: Reply) -> Dumpable:
    message = Dumpable(role="assistant", content=reply.content, tool_calls=list(reply.calls) or None, **reply.more)
    return Dumpable(choices=[Dumpable(message=message)])


def _chunks_of(reply: Reply) -> Iterator[Dumpable]:
    yield chunk(role="assistant", **reply.more)
    for word in (reply.content or "").split(" "):
        yield chunk(content=word if word == (reply.content or "").split(" ")[-1] else f"{word} ")
    for index, each in enumerate(reply.calls):
        name, arguments = each.function.name, each.function.arguments
        head = Dumpable(index=index, id=each.id, type="function", function=Dumpable(name=name, arguments=""))
        yield chunk(tool_calls=[head])
        for part in (arguments[:4], arguments[4:]):
            rest = Dumpable(index=index, id=None, type=None, function=Dumpable(name=None, arguments=part))
            yield chunk(tool_calls=[rest])
    yield chunk()


def ask_agents(client: Client, agent: Agent, *, stream: bool = False, text: str = "Hi", **options: Any) -> Response:
    """Run the agents on one message, streamed or not."""
    messages = [{"role": "user", "content": text}]
    run: Any = Swarm(client).run
    outcome = run(agent, messages, stream=stream, **options)
    return list(outcome)[-1]["response"] if stream else outcome


def results(response: Response) -> list[str]:
    """Return the contents of the tool messages."""
    return [message["content"] for message in response.messages if message["role"] == "tool"]


def senders(response: Response) -> list[str]:
    """Return the senders of the assistant messages."""
    return [message["sender"] for message in response.messages if message["role"] == "assistant"]
