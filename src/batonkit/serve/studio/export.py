"""One run as one HTML file that shows it without a server."""

import base64
from collections.abc import Callable, Collection
from hashlib import sha256
from typing import Any, cast

import msgspec

from ...handoffs.redaction import PII_PATTERNS, Redactor, find_patterns
from ..api.inspection_schemas import ExportedRun
from .page_files import read_asset

_FONTS = ("inter.woff2", "mono.woff2")
_KEPT = frozenset(
    ("key", "id", "run_id", "call_id", "origin", "type", "sender_key", "previous", "digest", "interrupt_id")
)
"""Fields that refer to events and runs."""
_USER_DATA = frozenset(("values", "written", "payload", "answer", "result", "output", "value", "data"))
"""Fields of any content, in which no name has this meaning."""


def export_page(exported: ExportedRun, *, redact: bool = False) -> bytes:
    """Return the page of an exported run: the code of Studio, its styles, its fonts and the run.

    The page's policy allows only this code and no requests.
    """
    data = msgspec.json.encode(exported)
    if redact:
        data = msgspec.json.encode(_redacted(msgspec.json.decode(data), _redactor()))
    style = read_asset("studio.css").decode()
    for font in _FONTS:
        encoded = base64.b64encode(read_asset(font)).decode()
        style = style.replace(f"./{font}", f"data:font/woff2;base64,{encoded}")
    code = read_asset("studio.js").decode().replace("</script", "<\\/script")
    policy = f"default-src 'none'; script-src {_hash(code)}; style-src {_hash(style)}; font-src data:; img-src data:"
    # A script of another type is data; `<` is escaped so that no text can end it.
    run = data.decode().replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<title>Baton Studio</title>"
        f"<style>{style}</style></head><body>"
        f'<div id="app"></div><script type="application/json" id="exported-run">{run}</script>'
        f'<script type="module">{code}</script></body></html>\n'
    ).encode()


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


def _redactor() -> Callable[[str], str]:
    return Redactor(find_patterns(None, built_in=PII_PATTERNS), "[{name}]").redact_text


def _redacted(value: Any, redact: Callable[[str], str], kept: Collection[str] = _KEPT) -> Any:
    """Return JSON data with redacted texts, except in the kept fields."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redacted(each, redact, kept) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {
            name: each if name in kept else _redacted(each, redact, () if name in _USER_DATA else kept)
            for name, each in fields.items()
        }
    return value
