"""A client like OpenAI's that plays a script: objects with attributes that dump themselves, whole or in chunks."""

import copy
import json
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, TypeAlias

from baton.swarm import Agent, Response, Swarm


class Dumping(SimpleNamespace):
    """Attributes that can be dumped, as the SDK's models can be."""

    def model_dump_json(self) -> str:
        return json.dumps(self, default=vars)


class Said:
    """An answer: what the assistant's message has in it."""

    def __init__(self, content: str | None = None, *calls: Dumping, **more: Any) -> None:
        self.content = content
        self.calls = calls
        self.more = more


Answer: TypeAlias = str | Dumping | Said | Exception | list[Any]
"""Text, a call, an answer of both, an error to raise, or the chunks of a stream as they are."""


def call(name: str, id: str | None = "", /, **arguments: Any) -> Dumping:
    """A call of a function; the client numbers those without an id."""
    return written_call(name, json.dumps(arguments), id)


def written_call(name: str, arguments: Any, id: str | None = "") -> Dumping:
    """A call with arguments just as the model wrote them."""
    return Dumping(id=id, function=Dumping(name=name, arguments=arguments), type="function")


def chunk(**delta: Any) -> Dumping:
    """One chunk of a stream."""
    return Dumping(choices=[Dumping(delta=Dumping(**{"role": None, "content": None, "tool_calls": None, **delta}))])


class Client:
    """Has `chat.completions.create`, and keeps what it was asked in `requests`."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self._calls = 0
        self.requests: list[dict[str, Any]] = []
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._create))
        self.pulled = 0
        """How many chunks were asked for."""
        self.is_closed = False

    @property
    def models(self) -> list[str]:
        return [request["model"] for request in self.requests]

    @property
    def prompts(self) -> list[str]:
        """What each request had for a system prompt."""
        return [request["messages"][0]["content"] for request in self.requests]

    def _create(self, **request: Any) -> Any:
        self.requests.append(copy.deepcopy(request))
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, list):
            return self._stream(answer)
        said = _as_said(answer)
        for each in said.calls:
            if each.id == "":
                self._calls += 1
                each.id = f"call_{self._calls}"
        return self._stream(_chunks_of(said)) if request["stream"] else _completion(said)

    def _stream(self, chunks: Iterable[Any]) -> Iterator[Any]:
        try:
            for each in chunks:
                self.pulled += 1
                yield each
        finally:
            self.is_closed = True


def _as_said(answer: str | Dumping | Said) -> Said:
    if isinstance(answer, Said):
        return answer
    return Said(answer) if isinstance(answer, str) else Said(None, answer)


def _completion(said: Said) -> Dumping:
    message = Dumping(role="assistant", content=said.content, tool_calls=list(said.calls) or None, **said.more)
    return Dumping(choices=[Dumping(message=message)])


def _chunks_of(said: Said) -> Iterator[Dumping]:
    yield chunk(role="assistant", **said.more)
    for word in (said.content or "").split(" "):
        yield chunk(content=word if word == (said.content or "").split(" ")[-1] else f"{word} ")
    for index, each in enumerate(said.calls):
        name, arguments = each.function.name, each.function.arguments
        head = Dumping(index=index, id=each.id, type="function", function=Dumping(name=name, arguments=""))
        yield chunk(tool_calls=[head])
        for piece in (arguments[:4], arguments[4:]):
            rest = Dumping(index=index, id=None, type=None, function=Dumping(name=None, arguments=piece))
            yield chunk(tool_calls=[rest])
    yield chunk()


def asked(client: Client, agent: Agent, *, stream: bool = False, text: str = "Hi", **options: Any) -> Response:
    """What the agents answer to one message, streamed or not."""
    messages = [{"role": "user", "content": text}]
    run: Any = Swarm(client).run
    outcome = run(agent, messages, stream=stream, **options)
    return list(outcome)[-1]["response"] if stream else outcome


def results(response: Response) -> list[str]:
    """What the functions came to."""
    return [message["content"] for message in response.messages if message["role"] == "tool"]


def senders(response: Response) -> list[str]:
    """Who spoke."""
    return [message["sender"] for message in response.messages if message["role"] == "assistant"]
