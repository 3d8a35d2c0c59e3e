"""What can be made to go wrong on an open connection, and when. Each happens once, unless it says otherwise."""

from collections.abc import Iterable
from typing import TypeAlias

from msgspec import Struct


class CutConnection(Struct, frozen=True):
    """The connection ends after the nth event of a type was sent, or before; without a code, it is torn."""

    at: str
    nth: int = 1
    before: bool = False
    code: int | None = None
    reason: str = ""


class DelayEvent(Struct, frozen=True):
    """The nth event of a type, and all after it, are sent so many seconds later."""

    at: str
    seconds: float
    nth: int = 1


class RepeatEvent(Struct, frozen=True):
    """The nth event of a type is sent twice; with `new_id`, as if it were another."""

    at: str
    nth: int = 1
    new_id: bool = False


class SwapEvents(Struct, frozen=True):
    """The nth event of a type is sent only after the one that follows it."""

    at: str
    nth: int = 1


class DropEvent(Struct, frozen=True):
    """The nth event of a type is never sent."""

    at: str
    nth: int = 1


class IgnoreCommand(Struct, frozen=True):
    """The nth command of a type is not carried out, and nothing is said about it."""

    command: str
    nth: int = 1


class RefuseCommand(Struct, frozen=True):
    """The nth command of a type is not carried out; an `error` event says so."""

    command: str
    code: str = "server_error"
    message: str = "scripted to be refused"
    kind: str = "server_error"
    nth: int = 1


SendingFault: TypeAlias = CutConnection | DelayEvent | RepeatEvent | SwapEvents | DropEvent
CommandFault: TypeAlias = IgnoreCommand | RefuseCommand
Fault: TypeAlias = SendingFault | CommandFault


class FaultPlan:
    """The faults that are still to come. Events are counted from when a fault is planned, over all connections."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._sending: list[tuple[SendingFault, list[int]]] = []
        self._commands: list[tuple[CommandFault, list[int]]] = []
        self.add(*faults)

    def add(self, *faults: Fault) -> None:
        """Let these happen too."""
        for fault in faults:
            if isinstance(fault, IgnoreCommand | RefuseCommand):
                self._commands.append((fault, [0]))
            else:
                self._sending.append((fault, [0]))

    @property
    def left(self) -> list[Fault]:
        """The faults that have not happened."""
        return [fault for fault, _ in (*self._sending, *self._commands)]

    def for_sending(self, kind: str) -> list[SendingFault]:
        """What goes wrong with the event of this type that is about to be sent."""
        due: list[SendingFault] = []
        for planned in list(self._sending):
            fault, seen = planned
            if fault.at == kind:
                seen[0] += 1
                if seen[0] == fault.nth:
                    self._sending.remove(planned)
                    due.append(fault)
        return due

    def for_command(self, kind: str) -> CommandFault | None:
        """What goes wrong with the command of this type that has just come."""
        due: CommandFault | None = None
        for planned in list(self._commands):
            fault, seen = planned
            if fault.command == kind:
                seen[0] += 1
                if seen[0] == fault.nth and due is None:
                    self._commands.remove(planned)
                    due = fault
        return due
