"""What is wrong with a body, found by msgspec and told in parts, so that each provider can say it in its own words."""

import re
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")

_PLACE = re.compile(r"^(?P<what>.*?)(?: - at `(?P<place>[^`]*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`")
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`")
_VALUE = re.compile(r"Invalid (?:enum )?value (?P<given>.*)")
_TYPE = re.compile(r"Expected `(?P<wanted>.*?)`(?:, got `(?P<given>.*?)`)?")


class InvalidBodyError(Exception):
    """One thing that is wrong: `place` is a path such as `messages[0].role`, "" for the whole body."""

    def __init__(
        self,
        kind: Literal["json", "unknown", "missing", "value", "type", "other"],
        place: str,
        *,
        wanted: str = "",
        given: str = "",
    ) -> None:
        super().__init__(f"{kind} at {place or 'the body'}: wanted {wanted or 'something else'}, got {given}")
        self.kind = kind
        self.place = place
        self.wanted = wanted
        self.given = given


class StrictStruct(Struct, forbid_unknown_fields=True, kw_only=True):
    """The parent of what stands in a body: a field that is not known is an error."""


def decoded(decoder: msgspec.json.Decoder[T], raw: bytes) -> T:
    """The body in its own form; Invalid if it does not fit."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise _told(str(error), "") from None
    except msgspec.DecodeError as error:
        raise InvalidBodyError("json", "", given=str(error)) from None


def converted(value: Any, kind: type[T], place: str) -> T:
    """A part of a body that was read as JSON before, in its own form; `place` is where it stands."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _told(str(error), place) from None


def _told(message: str, within: str) -> InvalidBodyError:
    found = _PLACE.match(message)
    what, place = (found["what"], found["place"] or "$") if found is not None else (message, "$")
    place = f"{within}{place[1:]}" if within else place[1:].removeprefix(".")
    if match := _UNKNOWN.match(what):
        return InvalidBodyError("unknown", _joined(place, match["name"]))
    if match := _MISSING.match(what):
        return InvalidBodyError("missing", _joined(place, match["name"]))
    if match := _VALUE.match(what):
        return InvalidBodyError("value", place, given=match["given"])
    if match := _TYPE.match(what):
        return InvalidBodyError("type", place, wanted=match["wanted"], given=match["given"] or "something else")
    return InvalidBodyError("other", place, given=what)


def _joined(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name
