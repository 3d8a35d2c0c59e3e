"""Where `Cache` keeps responses: a mapping, a SQLite file, or a cassette, which is a text file for tests."""

import hashlib
import logging
from collections.abc import MutableMapping
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from .._wording import quote_names, show
from ..errors import SetupError
from ..messages import text_of
from ..models import ModelRequest, ModelResponse

_logger = logging.getLogger("baton.middleware")
_NOT_IN_KEYS = {"timeout": None, "extra_headers": None}
_MAX_SUMMARY = 80


class Responses(Protocol):
    """Stored responses by request."""

    def find(self, request: ModelRequest) -> ModelResponse | None:
        """Return the response to an equal request."""
        ...

    def keep(self, request: ModelRequest, response: ModelResponse) -> None:
        """Store a response."""
        ...

    def explain_miss(self, request: ModelRequest) -> str:
        """Say why no response was found, as far as it is known."""
        ...

    def close(self) -> None:
        """Close the file, if there is one; the next use opens it again."""
        ...


def open_responses(store: str | Path | MutableMapping[str, bytes]) -> Responses:
    """Return the responses in a file or a mapping. Raises SetupError if it is neither."""
    if isinstance(store, str | Path) and str(store):
        return Cassette(Path(store)) if str(store).endswith(".jsonl") else _KeyedResponses(_ResponseFile(store))
    if isinstance(store, MutableMapping):
        return _KeyedResponses(store)
    raise SetupError(f'Cache({show(store)}): give a file, such as "cache.db", or a dict')


def request_hash(request: ModelRequest) -> str:
    """Return a hash of everything in a request that the response depends on."""
    return _digest(list(_parts(request).values()))


def summarize(request: ModelRequest) -> str:
    """Describe a request in one line: who asks which model, and the last message."""
    last = " ".join(text_of(request.messages[-1].content).split()) if request.messages else ""
    shortened = last if len(last) <= _MAX_SUMMARY else f"{last[:_MAX_SUMMARY]}…"
    return f"{request.agent or 'an agent'} asks {_model_name(request)}, last message: {shortened}"


def _model_name(request: ModelRequest) -> str:
    model: Any = request.model
    return str(model if isinstance(model, str) or model is None else model.name)


def _parts(request: ModelRequest) -> dict[str, Any]:
    """Return everything that the response depends on, by name."""
    return {
        "model": _model_name(request),
        "instructions": request.instructions,
        "messages": list(request.messages),
        "tools": request.tools,
        "settings": replace(request.settings, **_NOT_IN_KEYS),
        "output_schema": request.output_schema,
        "tool_choice": request.tool_choice,
    }


def _part_hashes(request: ModelRequest) -> dict[str, str]:
    return {name: _digest(part)[:12] for name, part in _parts(request).items()}


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()


class _Entry(msgspec.Struct):
    """One line of a cassette. Of the request, only a summary and hashes are kept."""

    request: str
    parts: dict[str, str]
    key: str
    response: ModelResponse


class Cassette:
    """Responses in a text file that can be reviewed and committed: one JSON object per line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._entries = {entry.key: entry for entry in self._read()}

    def find(self, request: ModelRequest) -> ModelResponse | None:
        """Return the response to an equal request."""
        entry = self._entries.get(request_hash(request))
        return None if entry is None else entry.response

    def keep(self, request: ModelRequest, response: ModelResponse) -> None:
        """Append a response to the file."""
        entry = _Entry(summarize(request), _part_hashes(request), request_hash(request), response)
        with self._lock:
            self._entries[entry.key] = entry
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with open(self._path, "ab") as file:
                    file.write(msgspec.json.encode(entry) + b"\n")
            except OSError as error:
                raise SetupError(f"Cache({str(self._path)!r}): cannot write the file: {error}") from None

    def explain_miss(self, request: ModelRequest) -> str:
        """Name the parts in which the request differs from the most similar recorded one."""
        if not self._entries:
            return "the file has no responses"
        hashes = _part_hashes(request)
        # Of equally similar ones the last: it was recorded with the newest version of the program.
        differences = [
            [name for name in hashes if entry.parts.get(name) != hashes[name]] for entry in self._entries.values()
        ]
        fewest = min(reversed(differences), key=len)
        return f"the most similar of {len(differences)} recorded requests differs in {quote_names(fewest)}"

    def close(self) -> None:
        """Do nothing: the file is open only while it is written."""

    def _read(self) -> list[_Entry]:
        try:
            lines = self._path.read_bytes().splitlines() if self._path.exists() else []
        except OSError as error:
            raise SetupError(f"Cache({str(self._path)!r}): cannot open the file: {error}") from None
        entries: list[_Entry] = []
        for number, line in enumerate(lines, start=1):
            try:
                entries.append(msgspec.json.decode(line, type=_Entry))
            except msgspec.MsgspecError as error:
                raise SetupError(
                    f"Cache({str(self._path)!r}): line {number} is not a recorded response: {error}"
                ) from None
        return entries


class _KeyedResponses:
    """Responses as bytes under the hash of their request."""

    def __init__(self, store: "MutableMapping[str, bytes] | _ResponseFile") -> None:
        self._store = store

    def find(self, request: ModelRequest) -> ModelResponse | None:
        """Return the response to an equal request; one that cannot be decoded is left out."""
        stored = self._store.get(request_hash(request))
        if stored is None:
            return None
        try:
            return msgspec.json.decode(stored, type=ModelResponse)
        except msgspec.MsgspecError as error:
            _logger.warning("the cache has an invalid response, which is not used: %s", error)
            return None

    def keep(self, request: ModelRequest, response: ModelResponse) -> None:
        """Store a response."""
        self._store[request_hash(request)] = msgspec.json.encode(response)

    def explain_miss(self, request: ModelRequest) -> str:
        """Say that only hashes are known; a cassette can say more."""
        return "a file that ends in .jsonl would say what has changed"

    def close(self) -> None:
        """Close the file, if there is one."""
        if isinstance(self._store, _ResponseFile):
            self._store.close()


class _ResponseFile:
    """Responses in a SQLite file. Processes and threads may share it."""

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        self._lock = Lock()
        self._connection: Any = None
        with self._lock:
            self._open()

    def get(self, key: str) -> bytes | None:
        """Return the response with a key."""
        row = self._execute("SELECT response FROM responses WHERE key = ?", key)
        return None if row is None else row[0]

    def __setitem__(self, key: str, response: bytes) -> None:
        self._execute("INSERT OR REPLACE INTO responses VALUES (?, ?)", key, response)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _execute(self, statement: str, *values: str | bytes) -> Any:
        """Execute a statement and return its first row."""
        import sqlite3

        try:
            with self._lock:
                return self._open().execute(statement, values).fetchone()
        except sqlite3.Error as error:
            raise SetupError(f"Cache({self._path!r}): cannot use the file: {error}") from None

    def _open(self) -> Any:
        if self._connection is None:
            import sqlite3

            try:
                opened = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
                try:
                    opened.execute("PRAGMA journal_mode = WAL")
                    opened.execute("PRAGMA synchronous = NORMAL")
                    opened.execute("CREATE TABLE IF NOT EXISTS responses(key TEXT PRIMARY KEY, response BLOB NOT NULL)")
                except sqlite3.Error:
                    opened.close()
                    raise
            except sqlite3.Error as error:
                raise SetupError(f"Cache({self._path!r}): cannot open the file: {error}") from None
            self._connection = opened
        return self._connection
