"""Fixtures of the model suite: the provider, requests, histories, and comparison of what the provider received."""

from abc import abstractmethod
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import msgspec
import pytest

from ...errors import ModelError
from ...messages import (
    AssistantMessage,
    Audio,
    Content,
    Data,
    File,
    Image,
    Message,
    Reasoning,
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
    text_of,
)
from ...models import Chunk, Model, ModelRequest, ModelResponse, ModelSettings, assemble_response
from ..scripted import ScriptStep
from .bench import Bench, close_model


class ModelProvider(Protocol):
    """The provider behind the model under test, which plays the script."""

    @property
    def understood(self) -> Sequence[ModelRequest]:
        """The requests it received, decoded from the wire format."""
        ...

    async def client_left(self, within: float) -> object:
        """Wait until a client disconnects during a response.

        Raises:
            AssertionError: No client disconnected in time.
        """
        ...


P = TypeVar("P", bound=ModelProvider)
HELLO = (UserMessage("Hello"),)


class ModelBench(Bench[P, Model]):
    """The methods that the author of a model implements; requests have `max_retries=0`."""

    @abstractmethod
    def provider(self, steps: Iterable[ScriptStep]) -> AbstractAsyncContextManager[P]:
        """Create a provider that plays these steps."""

    @asynccontextmanager
    async def played(self, *steps: ScriptStep) -> AsyncGenerator[tuple[Model, P], None]:
        """Open a model whose provider plays these steps."""
        async with self.provider(steps) as provider:
            model = self.model(provider)
            try:
                yield model, provider
            finally:
                await close_model(model)

    async def answer_to(self, step: ScriptStep, **fields: Any) -> tuple[ModelResponse, AssistantMessage]:
        """Return the model's response to a request for which the provider plays this step."""
        async with self.played(step) as (model, _):
            return await answer_of(model, request(**fields))

    async def failure_of(self, step: ScriptStep, seen: list[Chunk] | None = None, **fields: Any) -> ModelError:
        """Return the error of a request for which the provider plays this step."""
        async with self.played(step) as (model, _):
            with pytest.raises(ModelError) as raised:
                await chunks_of(model, request(**fields), seen)
        return raised.value

    async def understood(self, messages: Sequence[Message] = HELLO, **fields: Any) -> ModelRequest:
        """Return what the provider received of a request, after it was answered."""
        async with self.played("Understood.") as (model, provider):
            _, message = await answer_of(model, request(messages, **fields))
        assert text_of(message.content) == "Understood."
        return provider.understood[-1]


def request(messages: Sequence[Message] = HELLO, **fields: Any) -> ModelRequest:
    """Create a request as an agent does, without retries."""
    settings = fields.pop("settings", ModelSettings())
    once = ModelSettings(max_retries=0).merge(settings)
    arguments: dict[str, Any] = {"instructions": "Be kind.", "agent": "Tester", "settings": once, **fields}
    return ModelRequest(messages, **arguments)


def opened(model: Model, asked: ModelRequest) -> aclosing[AsyncGenerator[Chunk, None]]:
    """Open the chunks of a response; they are closed at the end of `async with`."""
    return aclosing(cast("AsyncGenerator[Chunk, None]", aiter(model.respond(asked))))


async def chunks_of(model: Model, asked: ModelRequest | None = None, seen: list[Chunk] | None = None) -> list[Chunk]:
    """Collect the chunks of a response; after a failure, `seen` has those before it."""
    seen = [] if seen is None else seen
    async with opened(model, asked or request()) as chunks:
        async for chunk in chunks:
            seen.append(chunk)
    return seen


async def answer_of(model: Model, asked: ModelRequest | None = None) -> tuple[ModelResponse, AssistantMessage]:
    """Collect a response and its message."""
    response = assemble_response(await chunks_of(model, asked), model.name)
    assert response.message is not None
    return response, response.message


_PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360000002000154a24f5d0000000049454e44ae426082"
)
_PDF = b"%PDF-1.4\n%%EOF\n"
_WAVE = ToolCall("call_1", "wave", '{"times":2}')
_BOW = ToolCall("call_2", "bow")
(_HELLO,) = HELLO
_DONE = AssistantMessage("Done.")
_WAVED = ToolMessage("call_1", "wave", "waved")
_BOWED = ToolMessage("call_2", "bow", "bowed")

_ASKS_WAVE = AssistantMessage(tool_calls=(_WAVE,))
_ASKS_BOW = AssistantMessage(tool_calls=(_BOW,))

HISTORIES: dict[str, tuple[Message, ...]] = {
    "one message": (_HELLO,),
    "several turns": (_HELLO, AssistantMessage("Hi, what is it?"), UserMessage("The weather.")),
    "user twice": (_HELLO, UserMessage("Anybody there?")),
    "assistant twice": (_HELLO, AssistantMessage("Hi."), AssistantMessage("What is it?"), UserMessage("Nothing.")),
    "assistant first": (AssistantMessage("How can I help?"), _HELLO),
    "assistant last": (_HELLO, AssistantMessage("Hi.")),
    "words of another agent": (
        _HELLO,
        UserMessage("For context: [Router] said: I pass you on."),
        UserMessage("For context: [Router] called tool: `wave` with arguments: {}."),
    ),
    "application in the middle": (_HELLO, SystemMessage("The user is in a hurry."), UserMessage("Well?")),
    "a call and its result": (_HELLO, _ASKS_WAVE, _WAVED),
    "text beside a call": (_HELLO, AssistantMessage("One moment.", (_WAVE,)), _WAVED, _DONE, UserMessage("Thanks")),
    "two calls at once": (_HELLO, AssistantMessage(tool_calls=(_WAVE, _BOW)), _WAVED, _BOWED),
    "a call after a call": (_HELLO, _ASKS_WAVE, _WAVED, _ASKS_BOW, _BOWED, _DONE, UserMessage("Thanks")),
    "a result and then the user": (_HELLO, _ASKS_WAVE, _WAVED, UserMessage("Thanks")),
    "a failed call": (_HELLO, _ASKS_WAVE, ToolMessage("call_1", "wave", "it hurts", is_error=True)),
    "an empty result": (_HELLO, _ASKS_WAVE, ToolMessage("call_1", "wave")),
    "a structured result": (_HELLO, _ASKS_WAVE, ToolMessage("call_1", "wave", (Text("so:"), Data({"waved": 2})))),
    "empty messages": (_HELLO, AssistantMessage(""), UserMessage(""), UserMessage("Anybody there?")),
    "structured input": (UserMessage((Text("Read this:"), Data({"city": "Rome"}))),),
    "thoughts of another provider": (
        _HELLO,
        AssistantMessage("Hi.", reasoning=(Reasoning("Hm.", "another", {"signature": "x"}),)),
        UserMessage("Go on"),
    ),
    "ids of another provider": (
        _HELLO,
        AssistantMessage(tool_calls=(ToolCall(f"chatcmpl:tool/{'ä' * 80}", "wave"),)),
        ToolMessage(f"chatcmpl:tool/{'ä' * 80}", "wave", "waved"),
    ),
    "arguments that are no JSON": (
        _HELLO,
        AssistantMessage(tool_calls=(ToolCall("call_1", "wave", '{"times": '),)),
        ToolMessage("call_1", "wave", "these are no arguments", is_error=True),
    ),
}
"""Histories by name. Each is valid: every call is directly followed by its result."""

MEDIA: dict[str, tuple[Message, ...]] = {
    "images": (UserMessage((Text("What is this?"), Image(data=_PNG))),),
    "image urls": (UserMessage((Text("What is this?"), Image(url="https://example.org/cat.png"))),),
    "files": (UserMessage((Text("Read:"), File(data=_PDF, media_type="application/pdf", name="a.pdf"))),),
}
"""Histories that need a capability of the model."""

Atom: TypeAlias = tuple[Any, ...]


def essence(messages: Sequence[Message]) -> list[Atom]:
    """Reduce messages to comparable atoms: texts without spaces, media, calls and results.

    Neighbouring messages of one role are merged, because providers merge them too.
    """
    numbers: dict[str, int] = {}
    atoms: list[Atom] = []
    for atom in _atoms(messages, numbers):
        if atoms and atom[0] == "text" and atoms[-1][:2] == atom[:2]:
            atoms[-1] = (*atom[:2], atoms[-1][2] + atom[2])
        else:
            atoms.append(atom)
    return atoms


def says_the_same(understood: Sequence[Message], told: Sequence[Message]) -> bool:
    """Return whether a provider received what was sent; arguments that are not JSON may differ."""
    there = essence(understood)
    here = essence(told)
    if here[0][:2] == ("text", "said") and there[:1] != here[:1]:
        del there[0]
    if here[-1][:2] == ("text", "said") and there[-1:] != here[-1:]:
        del there[-1]
    for position, atom in enumerate(here):
        if atom[0] == "call" and atom[3] is None and position < len(there):
            here[position] = (*atom[:3], *there[position][3:])
    return there == here


def _atoms(messages: Sequence[Message], numbers: dict[str, int]) -> Iterator[Atom]:
    for message in messages:
        match message:
            case UserMessage() | SystemMessage():
                yield from _spoken("told", message.content)
            case AssistantMessage():
                yield from _spoken("said", message.content)
                for call in message.tool_calls:
                    # Ids may repeat in later turns: the newest call is meant.
                    numbers[call.id] = len(numbers)
                    yield "call", numbers[call.id], call.name, _arguments(call.arguments)
            case ToolMessage():
                yield "result", numbers.get(message.tool_call_id), _squeezed(text_of(message.content))


def _spoken(speaker: str, content: Content) -> Iterator[Atom]:
    for part in (Text(content),) if isinstance(content, str) else content:
        match part:
            case Text():
                text = _squeezed(part.text)
            case Data():
                text = _squeezed(msgspec.json.encode(part.value).decode())
            case Image() | Audio() | File():
                yield type(part).__name__, speaker, part.url or part.data
                continue
        if text:
            yield "text", speaker, text


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _arguments(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
