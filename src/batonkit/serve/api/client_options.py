"""`ClientOptions`: the options of a run that an application lets clients set. Importable without Starlette."""

from collections.abc import Sequence

from msgspec import Struct

from ..._checks import CheckedStructMeta, check_choice
from ...agents.agent_options import SECRET_SETTINGS
from ...errors import SetupError
from ...models import ModelSettings


class ClientOptions(Struct, frozen=True, kw_only=True, metaclass=CheckedStructMeta):
    """The options of a run that clients of `api_app` may set in `POST /runs`; none by default.

    A client that chooses the model decides what a run costs and who reads the conversation; a client that writes
    instructions can make an agent do anything that its tools can. Allow each only for callers whom you trust with it.

    Args:
        models: The models that clients may choose, such as `"openai:gpt-5-mini"`.
        model_settings: The names of the model settings that clients may set, such as `"temperature"`.
        instructions: Whether clients may replace the instructions of agents.
        tools: Whether clients may limit an agent to some of its own tools. They cannot add any.
        max_turns: Whether clients may lower the number of turns of an agent. They cannot raise it.
    """

    models: Sequence[str] = ()
    model_settings: Sequence[str] = ()
    instructions: bool = False
    tools: bool = False
    max_turns: bool = False

    def __post_init__(self) -> None:
        for name in self.model_settings:
            if name in SECRET_SETTINGS:
                raise SetupError(
                    f"ClientOptions(model_settings=…) has `{name}`, which clients must not set; leave it out"
                )
            check_choice("ClientOptions(model_settings=…)", name, ModelSettings.__struct_fields__)


NO_OPTIONS = ClientOptions()
