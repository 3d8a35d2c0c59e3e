"""The input and the options of a request, checked against what the application lets clients send."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...agents import AgentOptions
from ...errors import SetupError, quote_names
from ...messages import UserMessage
from ...models import ModelSettings
from ...runs.run_args import RunArgs
from ...runs.run_options import find_model_agents, given_options
from ...team import Team
from ..http.http_errors import ServingError
from .client_options import ClientOptions
from .run_schemas import AgentOptionsBody, InputMessage, StartRunBody


def check_user_messages(input: str | Sequence[InputMessage]) -> None:
    """Refuse an input that contains what only agents and tools say.

    Raises:
        ServingError: A message is not one of the user.
    """
    if isinstance(input, str):
        return
    for position, message in enumerate(input):
        if not isinstance(message, UserMessage):
            raise ServingError(
                403,
                "history_not_allowed",
                f"`input[{position}]` is not a message of the user, and this server accepts no others; to continue a "
                "conversation, name its `thread`",
            )


def client_run_args(body: StartRunBody, allowed: ClientOptions, team: Team) -> RunArgs[Any]:
    """Return the options of a request as arguments of a run.

    Raises:
        ServingError: An option is not allowed or not valid.
    """
    args = RunArgs[Any]()
    if body.model is not None:
        args["model"] = _check_model(body.model, allowed)
    if body.model_settings is not None:
        args["model_settings"] = _to_settings(body.model_settings, allowed)
    if body.agent_options:
        args["agent_options"] = _to_agent_options(body.agent_options, allowed, team)
    if args:
        try:
            given_options(args, team)
        except SetupError as error:
            raise ServingError(422, "invalid", str(error)) from None
    return args


def _to_agent_options(
    given: Mapping[str, AgentOptionsBody], allowed: ClientOptions, team: Team
) -> Mapping[str, AgentOptions]:
    agents = find_model_agents(team)
    options: dict[str, AgentOptions] = {}
    for name, each in given.items():
        for field in ("instructions", "tools", "max_turns"):
            if getattr(each, field) is not None and not getattr(allowed, field):
                raise _not_allowed(field)
        turns = each.max_turns
        if turns is not None and name in agents:
            turns = min(turns, agents[name].max_turns)
        options[name] = AgentOptions(
            model=None if each.model is None else _check_model(each.model, allowed),
            model_settings=None if each.model_settings is None else _to_settings(each.model_settings, allowed),
            instructions=each.instructions,
            tools=each.tools,
            max_turns=turns,
        )
    return options


def _check_model(model: str, allowed: ClientOptions) -> str:
    if not allowed.models:
        raise _not_allowed("model")
    if model not in allowed.models:
        raise ServingError(422, "invalid", f"`model` must be one of: {quote_names(allowed.models)}")
    return model


def _to_settings(given: Mapping[str, Any], allowed: ClientOptions) -> ModelSettings:
    for name in given:
        if name not in allowed.model_settings:
            raise _not_allowed(f"model_settings.{name}")
    try:
        return msgspec.convert(given, ModelSettings)
    except msgspec.ValidationError as error:
        raise ServingError(422, "invalid", f"`model_settings` is not valid: {error}") from None


def _not_allowed(option: str) -> ServingError:
    return ServingError(403, "option_not_allowed", f"this server does not let clients set `{option}`")
