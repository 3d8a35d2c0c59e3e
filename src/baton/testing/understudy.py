"""A script that steps aside for a real model when BATON_MODEL names one: for examples that anybody can run."""

import os
from collections.abc import AsyncIterator, Iterable, Mapping

from ..models import Chunk, Model, ModelRequest, resolve_model
from ..models.registry import MODEL_ENV_VAR
from .scripted import ScriptedModel
from .steps import ScriptStep

SCRIPTED = "scripted"


class ScriptedOrRealModel(ScriptedModel):
    """A `ScriptedModel` that plays only if BATON_MODEL is not set, or says `scripted`; else the model it names answers.

    Requests are kept either way. With a real model a lesson may go another way than its script.
    """

    def __init__(
        self,
        steps: Iterable[ScriptStep] | Mapping[str, Iterable[ScriptStep]],
        *,
        cycle: bool = False,
        stream: bool = False,
    ) -> None:
        super().__init__(steps, cycle=cycle, stream=stream)
        wanted = os.environ.get(MODEL_ENV_VAR, SCRIPTED)
        self.real: Model | None = None if wanted in ("", SCRIPTED) else resolve_model(wanted, wanted_by=MODEL_ENV_VAR)
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


def scripted_or_real(
    steps: Iterable[ScriptStep] | Mapping[str, Iterable[ScriptStep]], *, cycle: bool = False, stream: bool = False
) -> ScriptedOrRealModel:
    """Return a scripted model, or the model that BATON_MODEL names.

    Args:
        steps: The script, as for `ScriptedModel`.
        cycle: Start over when the script is used up.
        stream: Stream the scripted responses word by word.
    """
    return ScriptedOrRealModel(steps, cycle=cycle, stream=stream)
