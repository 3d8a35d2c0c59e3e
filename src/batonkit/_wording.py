"""The wording of values, types and names in messages, and text that is safe to print on a terminal.

A leaf module: every package builds messages.
"""

from collections.abc import Iterable, Sequence
from reprlib import Repr

_MAX_VALUE = 200

UNSAFE_CODES = (
    *(*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A)),
    *(*range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080)),
)
"""Codes of control characters, and of invisible ones that reorder or hide text. Tabs and line breaks are harmless."""
_SYMBOLS = {code: chr(0x2400 + code) if code < 0x20 else "\ufffd" for code in UNSAFE_CODES} | {0x0D: ""}


def printable(text: str) -> str:
    """Make control characters visible, so that no text can control the terminal."""
    return text.translate(_SYMBOLS)


def one_line(text: str) -> str:
    """Make control characters and line breaks visible, for a cell of a table."""
    return printable(text).replace("\n", "␊").replace("\t", " ")


def quote_names(names: Sequence[str]) -> str:
    """Format names for an error message: `A`, `B`."""
    return ", ".join(f"`{name}`" for name in names) or "nothing"


def nearest(name: object, names: Iterable[object]) -> str:
    """Suggest the nearest valid name as the end of an error message, or return ""."""
    found = _closest(name, names)
    return f"; did you mean `{found}`?" if found else ""


def misspelled(name: str, given: Iterable[object]) -> str:
    """Name the key that was given for a missing one as the end of a message, or return ""."""
    found = _closest(name, given)
    return f"; did you write `{found}` instead?" if found else ""


def _closest(name: object, names: Iterable[object]) -> str:
    from difflib import get_close_matches

    # The keys of a mapping that a program passes may be anything.
    texts = [each for each in names if isinstance(each, str)]
    found = get_close_matches(name, texts, n=1) if isinstance(name, str) else []
    return found[0] if found else ""


def with_article(noun: str) -> str:
    """Put "a" or "an" before the name of a class: an Agent, a UserMessage."""
    return f"{'an' if noun[:1] in 'AEIOaeio' else 'a'} {noun}"


def type_of(value: object) -> str:
    """Name the type of a value for an error message: `an int`, `the class Agent`, `None`."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return "None" if value is None else with_article(type(value).__name__)


class _ShortRepr(Repr):
    """A repr of bounded length and depth, which does not fail if a `__repr__` does."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxstring = self.maxother = self.maxlong = _MAX_VALUE

    def repr_int(self, x: int, level: int) -> str:
        """Show an integer; Python refuses to print one of thousands of digits."""
        return super().repr_int(x, level) if x.bit_length() < 1000 else f"<an int of {x.bit_length()} bits>"


_short_repr = _ShortRepr()


def show(value: object) -> str:
    """Show a value in an error message, shortened if it is long or deeply nested."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a message about a value must not fail because of the value
        return _short_repr.repr(value)
    return text if len(text) <= _MAX_VALUE else _short_repr.repr(value)


def valid_text(text: str) -> str:
    """Return text without halves of surrogate pairs, which cannot be encoded."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def error_text(error: BaseException) -> str:
    """Return the text of an exception, also if its own `__str__` fails."""
    try:
        return valid_text(str(error))
    except Exception as problem:  # noqa: BLE001 - it must not replace the error
        return f"(its text cannot be shown: {type(problem).__name__})"
