"""Redaction of payment cards, bank accounts, e-mail addresses, phone numbers and other personal data in messages.

No pattern is perfect. These prefer shapes that hardly anything else has over finding every possible number:
- card: 13 to 19 digits, in one piece or with single spaces or dashes between groups, that begin like the cards of a
  network and pass the Luhn check. One in ten other numbers of that shape passes it too.
- ssn: 123-45-6789 or 123 45 6789, not nine digits in one piece. Tax numbers with a leading 9 match too.
- email: an address with a domain that has a dot.
- phone: + and 8 to 15 digits, or three, three and four digits with separators, as in (415) 555-0132. Numbers in one
  piece without + look like any other number, and other national forms like dates and ids: they are kept.

`RedactPII` has two more:
- iban: two capitals, two digits and 11 to 30 more, in one piece or in groups, with a valid checksum.
- ip: IPv4 addresses, which version numbers of four parts look like, and IPv6 addresses.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, cast

from msgspec.structs import replace

from ..context.values import to_json_value
from ..errors import SetupError, quote_names
from ..messages import AssistantMessage, Audio, Content, Data, File, Message, Part, Text, ToolCall, is_empty

Pattern: TypeAlias = str | re.Pattern[str]
Finder: TypeAlias = Callable[[str], Iterable[tuple[int, int]]]
"""Returns the (start, end) positions of matches in a text."""

_SPACES = r" \u00a0\u2007\u2009\u202f"
_DASHES = r"\-\u2010-\u2015\u2212"
_BETWEEN = f"[{_SPACES}{_DASHES}]"
_POINTS = f"[{_SPACES}{_DASHES}.]"
_LETTERS = "A-Za-z0-9À-ӿ"

# After a digit and a point it is a fraction, and every tenth of those would pass the Luhn check.
_DIGITS = re.compile(rf"(?<!\d)(?<!\d\.)\d+(?:{_BETWEEN}\d+)*")
_GROUP = re.compile(r"\d+")
_NETWORK = re.compile(r"[3-6]|2[2-7]|8[12]|9792")
_SSN = re.compile(
    rf"(?<!\d)(?<!\d[{_DASHES}])(?!000|666)\d{{3}}({_BETWEEN})(?!00)\d\d\1(?!0000)\d{{4}}(?!\d|[{_DASHES}]\d)"
)
# Possessive, and anchored at the start of a word: a long text without any @ is scanned only once.
_EMAIL = re.compile(
    rf"(?<![{_LETTERS}._%+-])(?<![{_LETTERS}]')[{_LETTERS}._%+-][{_LETTERS}._%+'-]*+"
    rf"@(?:[{_LETTERS}-]+\.)+[A-Za-zÀ-ӿ][{_LETTERS}-]*[{_LETTERS}]"
)
_PHONE = re.compile(
    rf"(?<![\w+])\+[1-9](?:[{_SPACES}{_DASHES}.()/]{{0,2}}\d){{7,14}}(?!\d)"
    rf"|(?<![\w{_DASHES}])(?:\d{{1,3}}{_POINTS})?(?:\(\d{{3}}\){_POINTS}?|\d{{3}}{_POINTS})\d{{3}}{_POINTS}\d{{4}}"
    rf"(?!\w|[{_DASHES}]\d)"
)


def _cards(text: str) -> Iterator[tuple[int, int]]:
    for run in _DIGITS.finditer(text):
        groups = [group.span() for group in _GROUP.finditer(text, run.start(), run.end())]
        for first, (start, _) in enumerate(groups):
            digits = ""
            for last in range(first, len(groups)):
                begin, end = groups[last]
                digits += text[begin:end]
                if len(digits) > 19:
                    break
                is_all = first == 0 and last == len(groups) - 1
                if len(digits) >= 13 and (is_all or _has_long_groups(groups[first:last])) and _is_card(digits):
                    yield start, end


def _has_long_groups(groups: Iterable[tuple[int, int]]) -> bool:
    # With an expiry date or a code, a card is only a part of the digits; its groups are long.
    return all(end - start >= 4 for start, end in groups)


def _is_card(digits: str) -> bool:
    plain = "".join(str(int(digit)) for digit in digits)
    doubled = (divmod(2 * int(digit), 10) for digit in plain[-2::-2])
    checksum = sum(int(digit) for digit in plain[-1::-2]) + sum(tens + ones for tens, ones in doubled)
    return checksum % 10 == 0 and _NETWORK.match(plain) is not None


_IBAN = re.compile(rf"(?<![A-Za-z0-9])[A-Z]{{2}}\d\d(?:{_BETWEEN}?[A-Z0-9]{{1,4}})+")
_IPV4 = re.compile(r"(?<![\w.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:])(?=[0-9A-Fa-f:]*\d)(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:])")


def _ibans(text: str) -> Iterator[tuple[int, int]]:
    for found in _IBAN.finditer(text):
        start = found.start()
        # What follows may look like a part of it, so the longest valid beginning is searched.
        ends = [end for end in range(found.end(), start + 14, -1) if end == found.end() or not text[end].isalnum()]
        for end in ends:
            if text[end - 1].isalnum() and _is_iban(text[start:end]):
                yield start, end
                break


def _is_iban(text: str) -> bool:
    plain = "".join(filter(str.isalnum, text))
    if not 15 <= len(plain) <= 34:
        return False
    return int("".join(str(int(character, 36)) for character in plain[4:] + plain[:4])) % 97 == 1


def _ips(text: str) -> Iterator[tuple[int, int]]:
    yield from (match.span() for match in _IPV4.finditer(text))
    for match in _IPV6.finditer(text):
        if _is_ipv6(match.group()):
            yield match.span()


def _is_ipv6(text: str) -> bool:
    from ipaddress import AddressValueError, IPv6Address

    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True


def _matcher(pattern: re.Pattern[str]) -> Finder:
    return lambda text: (match.span() for match in pattern.finditer(text))


_BUILT_IN: Mapping[str, Finder] = {
    "card": _cards,
    "ssn": _matcher(_SSN),
    "email": _matcher(_EMAIL),
    "phone": _matcher(_PHONE),
}
PII_PATTERNS: Mapping[str, Finder] = {**_BUILT_IN, "iban": _ibans, "ip": _ips}
"""The built-in patterns of `RedactPII`."""


def find_patterns(
    patterns: Mapping[str, Pattern] | Iterable[str] | None,
    *,
    owner: str = "redact",
    built_in: Mapping[str, Finder] = _BUILT_IN,
) -> dict[str, Finder]:
    """Return matchers by name.

    Raises:
        SetupError: A name is unknown, or a pattern is not a regular expression.
    """
    if patterns is None:
        return dict(built_in)
    if isinstance(patterns, Mapping):
        own = cast("Mapping[str, Pattern]", patterns)
        return {name: _matcher(_compile(owner, name, pattern)) for name, pattern in own.items()}
    names = [patterns] if isinstance(patterns, str) else list(patterns)
    unknown = [name for name in names if name not in built_in]
    if unknown:
        raise SetupError(
            f"{owner} has no pattern {quote_names(unknown)}; it has {quote_names([*built_in])}. "
            "Give your own pattern as a mapping of its name to a regular expression"
        )
    return {name: built_in[name] for name in names}


def _compile(owner: str, name: str, pattern: Any) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
        compiled.search("")  # A bytes pattern fails only here.
    except (re.error, TypeError) as error:
        raise SetupError(f"the pattern `{name}` given to {owner} is not a regular expression: {error}") from None
    return compiled


class Redactor:
    """Replaces matches in all texts of a message."""

    def __init__(
        self,
        finders: Mapping[str, Finder],
        replacement: str | Callable[[str, str], str],
        *,
        keeps_reasoning: bool = False,
    ) -> None:
        self._finders = finders
        self._replacement = replacement
        self._keeps_reasoning = keeps_reasoning

    def redact_message(self, message: Message) -> Message | None:
        """Redact a message; return None if nothing is left of it."""
        if not isinstance(message, AssistantMessage):
            clean = self._content(message.content)
            return message if clean == message.content else replace(message, content=clean)
        # Reasoning is removed as a whole: opaque reasoning cannot be searched, signed reasoning must not be changed.
        calls = tuple(map(self._call, message.tool_calls))
        reasoning = message.reasoning if self._keeps_reasoning else ()
        changed = replace(message, content=self._content(message.content), tool_calls=calls, reasoning=reasoning)
        if message.reasoning and not reasoning and is_empty(changed):
            return None
        return message if changed == message else changed

    def redact_text(self, text: str) -> str:
        """Redact a text. Overlapping matches are replaced once, with the name of the first."""
        spans = sorted(
            (start, -end, name) for name, find in self._finders.items() for start, end in find(text) if start < end
        )
        pieces: list[str] = []
        done = 0
        for start, end, name in spans:
            if start >= done:
                pieces += text[done:start], self._insert(name, text[start:-end])
            done = max(done, -end)
        return "".join((*pieces, text[done:]))

    def _insert(self, name: str, found: str) -> str:
        replacement = self._replacement
        return replacement.replace("{name}", name) if isinstance(replacement, str) else replacement(name, found)

    def _content(self, content: Content) -> Content:
        return self.redact_text(content) if isinstance(content, str) else tuple(map(self._part, content))

    def _part(self, part: Part) -> Part:
        match part:
            case Text():
                return Text(self.redact_text(part.text))
            case Data():
                return Data(self._value(to_json_value("a data part", part.value)))
            case Audio(transcript=str(spoken)):
                return replace(part, transcript=self.redact_text(spoken))
            case File(name=str(name)):
                return replace(part, name=self.redact_text(name))
            case _:
                return part

    def _call(self, call: ToolCall) -> ToolCall:
        try:
            value = json.loads(call.arguments)
            clean = self._value(value)
            # Searched as text, too: of two equal keys only the last is in the value.
            if clean == value and self.redact_text(call.arguments) == call.arguments:
                return call
            return replace(call, arguments=json.dumps(clean, ensure_ascii=False))
        except (ValueError, RecursionError):
            return replace(call, arguments=self.redact_text(call.arguments))

    def _value(self, value: Any) -> Any:
        match value:
            case str():
                return self.redact_text(value)
            case bool() | float() | None:
                return value
            case int():
                # Models may write card numbers as integers; a redacted one becomes a string.
                clean = self.redact_text(str(value))
                return value if clean == str(value) else clean
            case dict():
                return self._object(cast("dict[str, Any]", value))
            case _:
                return [self._value(item) for item in value]

    def _object(self, value: dict[str, Any]) -> dict[str, Any]:
        clean: dict[str, Any] = {}
        for name, item in value.items():
            key = self.redact_text(name)
            number = 1
            while key in clean:
                number += 1
                key = f"{self.redact_text(name)} {number}"
            clean[key] = self._value(item)
        return clean
