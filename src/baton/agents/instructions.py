"""An agent's instructions as its model will read them this turn."""

import re
from collections.abc import Mapping
from inspect import isawaitable
from typing import Any

from .base import AgentContext

_FIELD = re.compile(r"\{([^{}\s]+)\}")


async def build_instructions(ctx: AgentContext[Any], instructions: Any, *, template: bool) -> str:
    """The agent's own words, then who it may transfer to."""
    text = instructions
    if not isinstance(text, str):
        text = instructions(ctx)
        if isawaitable(text):
            text = await text
    if template:
        text = render_template(text, ctx.values)
    return with_section(text, ctx._routes.section)


def with_section(text: str, section: str) -> str:
    """The agent's own words, then the section about its team, if there is one."""
    if not section:
        return text
    return f"{text}\n\n{section}" if text else section


def render_template(text: str, values: Mapping[str, Any]) -> str:
    """The text with each `{name}` replaced that is among the values; all other braces stay as they are."""

    def fill(match: re.Match[str]) -> str:
        name = match.group(1)
        return str(values[name]) if name in values else match.group(0)

    return _FIELD.sub(fill, text)
