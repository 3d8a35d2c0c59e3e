"""A script that steps aside for a real model when BATON_MODEL names one: for examples that anybody can run."""

import os
from collections.abc import AsyncIterator, Iterable, Mapping

from ..models import Chunk, Model, ModelRequest, resolve
from ..models.registry import DEFAULT_VARIABLE
from .scripted import ScriptedModel
from .steps import Step

SCRIPTED = "scripted"


class Understudy(ScriptedModel):
    """A `ScriptedModel` that plays only if BATON_MODEL is not set, or says `scripted`; else the model it names answers.

    Requests are kept either way. With a real model a lesson may go another way than its script.
    """

    def __init__(
        self,
        steps: Iterable[Step] | Mapping[str, Iterable[Step]],
        *,
        cycle: bool = False,
        stream: bool = False,
    ) -> None:
        super().__init__(steps, cycle=cycle, stream=stream)
        wanted = os.environ.get(DEFAULT_VARIABLE, SCRIPTED)
        self.real: Model | None = None if wanted in ("", SCRIPTED) else resolve(wanted, wanted_by=DEFAULT_VARIABLE)
        """The model that answers in place of the script, if there is one."""
        if self.real is not None:
            self.name = self.real.name

    @property
    def notice(self) -> str:
        """A line that says who answers."""
        if self.real is None:
            return "scripted model: no language model is asked"
        return f"model: {self.name}; what it does may differ from the lesson's script"

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Let the real model answer, or play the next step."""
        if self.real is None:
            chunks = super().respond(request)
        else:
            self.requests.append(request)
            chunks = self.real.respond(request)
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()
