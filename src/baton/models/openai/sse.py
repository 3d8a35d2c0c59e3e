"""Server-sent events out of a stream of bytes, however the network has cut it."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class SSEDecoder:
    """Takes bytes as they come and gives the data of every event that is complete."""

    __slots__ = ("_data", "_is_begun", "_unfinished")

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []
        self._data: list[bytes] = []
        self._is_begun = False

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that end in this piece."""
        # A "\r" at the very end may be half of a "\r\n", so it does not end a line yet.
        end = max(piece.rfind(b"\n"), piece.rfind(b"\r", 0, -1)) + 1
        if self._unfinished:
            if not end and not self._unfinished[-1].endswith(b"\r"):
                # Joined only once a line ends: a long line in many pieces would be copied for each of them.
                self._unfinished.append(piece)
                return []
            piece = b"".join([*self._unfinished, piece])
            self._unfinished.clear()
            end = max(piece.rfind(b"\n"), piece.rfind(b"\r", 0, -1)) + 1
        if end < len(piece):
            self._unfinished.append(piece[end:])
        return self._events(piece[:end].splitlines())

    def rest(self) -> list[bytes]:
        """What was left at the end: the data of an event whose last line was never closed."""
        lines = b"".join(self._unfinished).splitlines()
        self._unfinished.clear()
        return self._events([*lines, b""])

    def _events(self, lines: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        if lines and not self._is_begun:
            self._is_begun = True
            lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
        for line in lines:
            if not line:
                if self._data:
                    events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                    self._data.clear()
            elif line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
        return events
