"""Windows onto a growing list: cheap, and never seen to change."""

import pytest

from batonkit.log import HistoryEntry, Origin
from batonkit.log.history import History
from batonkit.log.view import MessageWindow
from batonkit.messages import AssistantMessage, Message, UserMessage, text_of

A, B, C = UserMessage("a"), UserMessage("b"), UserMessage("c")


@pytest.fixture
def window() -> MessageWindow:
    """The first two of three messages."""
    messages: list[Message] = [A, B]
    window = MessageWindow(messages, 2, {})
    messages.append(C)
    return window


def test_a_window_shows_what_was_there_when_it_was_made(window: MessageWindow) -> None:
    assert len(window) == 2
    assert list(window) == [A, B]
    assert window == [A, B]
    assert window != [A, B, C]
    assert C not in window
    assert list(reversed(window)) == [B, A]


def test_a_window_is_read_like_a_list(window: MessageWindow) -> None:
    assert (window[0], window[1], window[-1], window[-2]) == (A, B, B, A)
    assert list(window[1:]) == [B]
    assert list(window[:10]) == [A, B]
    for outside in (2, 5, -3):
        with pytest.raises(IndexError):
            window[outside]


def test_an_entry_tells_who_said_it_and_where() -> None:
    origin = Origin("2", "B", Origin("1", "A"))
    said, given = HistoryEntry(AssistantMessage("x"), origin), HistoryEntry(UserMessage("hi"))
    assert (said.author, said.path, said.is_user_input) == ("B", ("A", "B"), False)
    assert (given.author, given.path, given.is_user_input) == (None, (), True)


def test_a_history_forgets_what_an_agent_has_added_but_not_what_the_user_said() -> None:
    agent = Origin("1", "A")
    history = History([HistoryEntry(A, key="run")])
    history.entries.append(HistoryEntry(AssistantMessage("x"), agent, key="1/m1"))
    history.entries.append(HistoryEntry(UserMessage("wait"), key="1/m2/user1"))
    history.entries.append(HistoryEntry(AssistantMessage("by middleware"), agent, key="1/mw:Notes/say1"))
    history.forget("1")
    assert [text_of(entry.message.content) for entry in history.entries] == ["a", "wait", "by middleware"]


def test_a_joined_branch_brings_its_undone_turns_along() -> None:
    history = History([HistoryEntry(UserMessage("go"))])
    one, two = history.fork(), history.fork()
    one.entries.append(HistoryEntry(UserMessage("a"), None))
    two.hidden_at.append(1)
    two.entries.append(HistoryEntry(UserMessage("b"), None))
    for branch in (one, two):
        history.join(branch, 1)
    assert ([text_of(entry.message.content) for entry in history.entries], history.hidden_at) == (["go", "a", "b"], [2])
