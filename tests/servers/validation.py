"""Validation of bodies with msgspec; errors are structured, so that each provider can format them."""

import re
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")

_PLACE = re.compile(r"^(?P<problem>.*?)(?: - at `(?P<place>[^`]*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`")
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`")
_VALUE = re.compile(r"Invalid (?:enum )?value (?P<given>.*)")
_TYPE = re.compile(r"Expected `(?P<wanted>.*?)`(?:, got `(?P<given>.*?)`)?")


class InvalidBodyError(Exception):
    """One validation error: `place` is a path such as `messages[0].role`, "" for the whole body."""

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
    """Base of the objects in a body; unknown fields are errors."""


def decoded(decoder: msgspec.json.Decoder[T], raw: bytes) -> T:
    """Decode a body; raise an InvalidBodyError if it is invalid."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise _error_of(str(error), "") from None
    except msgspec.DecodeError as error:
        raise InvalidBodyError("json", "", given=str(error)) from None


def converted(value: Any, kind: type[T], place: str) -> T:
    """Convert a decoded part of a body; `place` is its path."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _error_of(str(error), place) from None


def _error_of(message: str, within: str) -> InvalidBodyError:
    found = _PLACE.match(message)
    problem, place = (found["problem"], found["place"] or "$") if found is not None else (message, "$")
    place = f"{within}{place[1:]}" if within else place[1:].removeprefix(".")
    if match := _UNKNOWN.match(problem):
        return InvalidBodyError("unknown", _joined(place, match["name"]))
    if match := _MISSING.match(problem):
        return InvalidBodyError("missing", _joined(place, match["name"]))
    if match := _VALUE.match(problem):
        return InvalidBodyError("value", place, given=match["given"])
    if match := _TYPE.match(problem):
        return InvalidBodyError("type", place, wanted=match["wanted"], given=match["given"] or "something else")
    return InvalidBodyError("other", place, given=problem)


def _joined(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name
