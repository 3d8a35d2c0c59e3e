"""The span builder handles every event class."""

from typing import get_args

from batonkit.log import Event
from batonkit.otel import spans


def test_every_event_class_is_handled() -> None:
    # A new event class must be added to the union; pyright then points at the match that lacks a case.
    assert set(get_args(spans.AnyEvent)) == {
        event for event in Event.__subclasses__() if event.__module__ == "batonkit.log.events"
    }
