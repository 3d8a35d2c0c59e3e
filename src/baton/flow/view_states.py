"""The views of activations on the history as snapshots hold them."""

from collections.abc import Sequence
from typing import cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from ..context import HistoryEntry
from ..context.history import History, HistoryView
from ..events import Origin
from ..messages import Message
from .history import FixedView, RunningView, SelectedPolicy, Selection, rewrite_entry, share_reads

_BARE = 2
"""The form of an entry without its transfer."""


class ChosenMessage(Struct, frozen=True, array_like=True):
    """A message that was chosen for an activation, for a snapshot."""

    position: int
    """The position of its entry; -1 if it has none."""
    form: int = 0
    """Which of the entry's forms it is."""
    message: Message | None = None
    """The message, if it has no entry."""


def save_messages(messages: Sequence[Message], entries: Sequence[HistoryEntry], first: int) -> list[ChosenMessage]:
    """Describe messages by the entries that they come from.

    Args:
        messages: The messages.
        entries: The entries of the history.
        first: The position of the first entry that the snapshot holds.
    """
    known: dict[int, ChosenMessage] = {}
    for position, entry in enumerate(entries[first:], first):
        for form, message in enumerate((entry.message, entry.rewritten, entry.rewritten_bare)):
            known[id(message)] = ChosenMessage(position, form)
    return [known.get(id(message)) or ChosenMessage(-1, 0, message) for message in messages]


def restore_messages(saved: Sequence[ChosenMessage], entries: Sequence[HistoryEntry]) -> list[Message]:
    """Return the messages that `save_messages` has described.

    Args:
        saved: The descriptions.
        entries: The entries of the history.
    """
    messages: list[Message | None] = []
    for each in saved:
        entry = entries[each.position] if each.position >= 0 else None
        if entry is None:
            messages.append(each.message)
        elif each.form == 0:
            messages.append(entry.message)
        else:
            messages.append(rewrite_entry(entry, hide_transfers=each.form == _BARE))
    return [message for message in messages if message is not None]


def move_messages(saved: Sequence[ChosenMessage], shift: int) -> list[ChosenMessage]:
    """Return descriptions of messages for a history with more or fewer first entries.

    Args:
        saved: The descriptions.
        shift: The number of entries that are added.
    """
    return [each if each.position < 0 else replace(each, position=each.position + shift) for each in saved]


class ViewState(Struct, frozen=True, array_like=True):
    """The view of an activation on its history, for a snapshot."""

    policy: str
    """The history policy, `function` or `filter`."""
    start: int
    """The position of the first entry that follows what it has read before."""
    is_compacted: bool = False
    """True if a summary covers messages of the activation."""
    given: list[ChosenMessage] | None = None
    """The messages that it starts with, if a policy does not select them from the entries."""
    summarized: int = 0
    """The number of these that are a summary for this activation alone."""


def move_view(state: ViewState, shift: int) -> ViewState:
    """Return the state of a view for a history with more or fewer first entries.

    Args:
        state: The state.
        shift: The number of entries that are added.
    """
    given = None if state.given is None else move_messages(state.given, shift)
    return replace(state, start=state.start + shift, given=given)


def can_save(view: HistoryView) -> bool:
    """Return whether a snapshot can hold a view.

    Args:
        view: The view of an activation.
    """
    return isinstance(view, RunningView) or (isinstance(view, FixedView) and view._selected_from is None)


def save_view(view: HistoryView, first: int) -> ViewState:
    """Return the state of a view that a snapshot can hold.

    Args:
        view: The view of an activation.
        first: The position of the first entry that the snapshot holds.
    """
    if isinstance(view, RunningView):
        return ViewState(view.policy, view._start, view._is_compacted)
    fixed, given = cast("FixedView", view), None
    if fixed.selection is None or fixed._summarized:
        given = save_messages(fixed.chosen[: fixed._given], fixed.entries, first)
    return ViewState(fixed.policy, fixed._own, given=given, summarized=fixed._summarized)


def restore_view(history: History, origin: Origin, state: ViewState, *, hide_transfers: bool) -> HistoryView:
    """Return the view of an activation that a snapshot has interrupted.

    Args:
        history: The history.
        origin: The activation.
        state: The state of the view.
        hide_transfers: Whether to leave out followed transfers.
    """
    if state.policy == "rewritten" or state.policy == "verbatim":
        readers = share_reads(history, state.policy == "rewritten", hide_transfers)
        view = RunningView(readers, origin, state.start)
        if state.is_compacted:
            view.read_summary(state.start)
        return view
    entries, selection = history.entries, None
    if state.policy in get_args(SelectedPolicy):
        selection = Selection(cast("SelectedPolicy", state.policy), origin, hide_transfers)
    if state.given is not None or selection is None:
        given = restore_messages(state.given or (), entries)
    else:
        prefix = history.prefix_for(selection.readers)
        given = selection.read(selection.choose([*prefix.entries, *entries[prefix.stop : state.start]]))
    fixed = FixedView(entries, given, state.start, state.policy, selection)
    fixed._summarized = state.summarized
    return fixed
