"""What OpenAI would refuse of a session's settings, found before they are sent."""

import re
from collections.abc import Collection
from typing import Any

from ...errors import SetupError, quote_names
from ...messages import ToolSpec
from ..settings import SessionConfig

VOICES = ("alloy", "ash", "ballad", "cedar", "coral", "echo", "marin", "sage", "shimmer", "verse")
OWN_VOICE = "voice_"
"""How the ids of voices begin that somebody has made for an account of their own."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MOST_TOOLS = 128
_LONGEST_INSTRUCTIONS = 65_536
_SLOWEST, _FASTEST = 0.25, 1.5
_MOST_TOKENS = 4096
_CHOICES = ("auto", "none", "required")


def check_settings(settings: SessionConfig, model: str, voices: Collection[str]) -> None:
    """Raise SetupError if OpenAI would not take these settings."""
    who = f"`{settings.agent}`"
    size = len(settings.instructions)
    if size > _LONGEST_INSTRUCTIONS:
        raise SetupError(
            f"the instructions of {who} have {size:,} characters; `{model}` takes at most {_LONGEST_INSTRUCTIONS:,}"
        )
    _check_voice(settings, model, voices)
    speed, most = settings.settings.speed, settings.settings.max_output_tokens
    if speed is not None and not _SLOWEST <= speed <= _FASTEST:
        raise SetupError(f"the speed for {who} is {speed:g}; `{model}` speaks from {_SLOWEST:g} to {_FASTEST:g}")
    if most is not None and not 1 <= most <= _MOST_TOKENS:
        raise SetupError(f"max_output_tokens for {who} is {most}; `{model}` takes from 1 to {_MOST_TOKENS}, or None")
    _check_tools(settings, model)


def _check_voice(settings: SessionConfig, model: str, voices: Collection[str]) -> None:
    for voice, whose in ((settings.voice, f"of `{settings.agent}`"), (settings.settings.voice, "of the conversation")):
        if voice is not None and voice not in voices and not voice.startswith(OWN_VOICE):
            known = quote_names(sorted(voices))
            raise SetupError(
                f"the voice {whose} is {voice!r}; `{model}` can speak with: {known}, or the id of a voice of your own"
            )


def _check_tools(settings: SessionConfig, model: str) -> None:
    tools = settings.tools
    if len(tools) > _MOST_TOOLS:
        raise SetupError(f"`{settings.agent}` has {len(tools)} tools; `{model}` takes at most {_MOST_TOOLS}")
    seen: set[str] = set()
    for tool in tools:
        _check_tool(tool, settings.agent, model)
        if tool.name in seen:
            raise SetupError(f"`{settings.agent}` has two tools of the name `{tool.name}`; give one another name")
        seen.add(tool.name)
    choice = settings.tool_choice
    if choice not in _CHOICES and choice not in seen:
        possible = quote_names([*_CHOICES, *sorted(seen)])
        raise SetupError(f"the tool_choice of `{settings.agent}` is {choice!r}; it can be: {possible}")


def _check_tool(tool: ToolSpec, agent: str, model: str) -> None:
    if not _NAME.fullmatch(tool.name):
        form = "letters, digits, _ and -, from 1 to 64 of them"
        raise SetupError(f"`{agent}` has a tool named {tool.name!r}; `{model}` takes names of {form}")
    kind: Any = tool.parameters.get("type")
    if kind != "object":
        raise SetupError(
            f"the parameters of the tool `{tool.name}` of `{agent}` are a schema of type {kind!r}; "
            f'`{model}` takes only schemas of type "object"'
        )
