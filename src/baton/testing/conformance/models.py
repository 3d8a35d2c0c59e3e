"""The suite for models: what every model must do, whoever its provider is."""

from .answers import AnswerChecks
from .bench import ModelProvider, P
from .failures import FailureChecks
from .requests import SETTINGS, RequestChecks

__all__ = ["MODEL_CAPABILITIES", "ModelConformance", "ModelProvider"]

MODEL_CAPABILITIES = frozenset(
    {
        *("streaming", "parallel calls", "reasoning", "structured output", "cached tokens"),
        *("images", "image urls", "files", "tool_choice", *SETTINGS),
    }
)
"""What a model may say that it cannot do; everything else, every model must."""


class ModelConformance(AnswerChecks[P], FailureChecks[P], RequestChecks[P]):
    """Subclass it in a test file, say how to make the provider and the model, and pytest runs every check."""

    def __init_subclass__(cls) -> None:
        unknown = cls.cannot - MODEL_CAPABILITIES
        if unknown:
            raise TypeError(f"{cls.__name__}.cannot has {sorted(unknown)}; it can have: {sorted(MODEL_CAPABILITIES)}")
        super().__init_subclass__()
