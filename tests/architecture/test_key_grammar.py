"""Keys are made and read in `batonkit.log.keys`, and nowhere else."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import pytest
from tests.architecture.shape import PACKAGE, REPOSITORY

GRAMMAR = PACKAGE / "log" / "keys.py"
OTHER_KEYS = {
    "src/batonkit/messages/input_parts.py": "places in JSON data",
    "src/batonkit/serve/api/handlers.py": "idempotency keys of requests",
}
"""Modules with keys of another kind."""
MAKES = "makes a key; use keys.inside, or the function of log/keys.py for this effect"
MAKES_CALL = "makes the key of a call; use keys.call(response, position)"
MAKES_ANSWER = "makes the key of an answer; use keys.answer(interrupt)"
READS = "takes a key apart; use keys.parent, name, contains, is_nested or another function of log/keys.py"
MATCHES = "matches a key; put the regular expression into a function of log/keys.py"

_CUTS = {"partition", "removeprefix", "removesuffix", "rpartition", "rsplit", "split"}
_STRING_METHODS = _CUTS | {"count", "endswith", "find", "replace", "rfind", "startswith"}
_PATTERN_METHODS = {"compile", "findall", "finditer", "fullmatch", "match", "search", "split", "sub"}
_PATTERN_OVER_KEYS = re.compile(r"/[(\[]*[a-z|]+[)\]]*\(*\\d|\[im\]")
"""Matches regular expressions over parts of keys: a slash, a word and a number, as in `/m` and digits."""


def key_faults(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of code that makes or reads keys by itself."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.expr) and (fault := _fault(node)):
            yield node.lineno, fault


def _fault(node: ast.expr) -> str:
    match node:
        case ast.JoinedStr():
            return _made_by_format(node.values)
        case ast.BinOp(left, ast.Add(), right):
            return _made_by_format([ast.FormattedValue(left, -1), right])
        case ast.Compare(left, [ast.In() | ast.NotIn()], [right]):
            return READS if "/" in _text(left) and _is_key_or_id(right) else ""
        case ast.Call(ast.Attribute() as method, arguments):
            return _read_by_method(method, arguments)
        case _:
            return ""


def _made_by_format(parts: Sequence[ast.expr]) -> str:
    for part, after in pairwise(parts):
        if not isinstance(part, ast.FormattedValue):
            continue
        text = _text(after)
        if text.startswith("/") and _mentions(part.value, _is_key):
            return MAKES
        is_position = re.match(r"\.\d", text) or (text == "." and after is not parts[-1])
        if is_position and _mentions(part.value, _is_named_key):
            return MAKES_CALL
        if text == "!" and len(parts) == 2 and _is_key_or_id(part.value):
            return MAKES_ANSWER
    return ""


def _read_by_method(method: ast.Attribute, arguments: Sequence[ast.expr]) -> str:
    if method.attr in _STRING_METHODS and _is_key_or_id(method.value):
        return READS if any("/" in _text(argument) for argument in arguments) else ""
    if method.attr in _PATTERN_METHODS:
        is_over_keys = any(_is_key(argument) or _PATTERN_OVER_KEYS.search(_text(argument)) for argument in arguments)
        return MATCHES if is_over_keys else ""
    return ""


def _mentions(value: ast.expr, is_key: Callable[[ast.expr], bool]) -> bool:
    """Return whether a value is computed from a key; the name of a method that is called does not count."""
    if is_key(value):
        return True
    parts: Iterable[ast.AST] = ast.iter_child_nodes(value)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        parts = (value.func.value, *value.args)
    return any(_mentions(part, is_key) for part in parts if isinstance(part, ast.expr))


def _is_key(value: ast.expr) -> bool:
    is_origin_id = _name(value) == "id" and isinstance(value, ast.Attribute) and _name(value.value).endswith("origin")
    return is_origin_id or _is_named_key(value)


def _is_named_key(value: ast.expr) -> bool:
    return _name(value).endswith(("key", "scope"))


def _is_key_or_id(value: ast.expr) -> bool:
    return _is_named_key(value) or _name(value) == "id"


def _name(value: ast.expr) -> str:
    if isinstance(value, ast.Attribute):
        return value.attr
    return value.id if isinstance(value, ast.Name) else ""


def _text(value: ast.expr) -> str:
    """Return the text of a literal; of an f-string, what is fixed."""
    if isinstance(value, ast.JoinedStr):
        return "".join(map(_text, value.values))
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def test_keys_are_made_and_read_in_one_module() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if path != GRAMMAR]
    assert len(files) > 200
    found = [
        f"{name}:{line}: {fault}"
        for path in files
        if (name := str(path.relative_to(REPOSITORY))) not in OTHER_KEYS
        for line, fault in key_faults(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_the_grammar_itself_has_every_kind_of_fault() -> None:
    found = {fault for _, fault in key_faults(GRAMMAR.read_text(encoding="utf-8"))}
    assert found >= {MAKES, READS, MATCHES}


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ('f"{ctx._scope}/start"', MAKES),
        ('f"{key}/user{number}"', MAKES),
        ('f"{origin.id}/end"', MAKES),
        ('f"{ctx._origin.id}/m{turn}"', MAKES),
        ("f\"{error.key.rpartition('/')[0]}/end\"", MAKES),
        ('f"run:{self._scope}/i{number}"', MAKES),
        ('key + "/start"', MAKES),
        ('f"{response.key}.{position}"', MAKES_CALL),
        ('f"{response.key}.0"', MAKES_CALL),
        ('f"{asked.key}!"', MAKES_ANSWER),
        ('f"{id}!"', MAKES_ANSWER),
        ('key + "!"', MAKES_ANSWER),
        ('"/" in ctx._scope', READS),
        ('"/" not in event.origin.id', READS),
        ('"/ask" in id', READS),
        ('event.key.endswith("/failed")', READS),
        ('event.key.startswith(f"{other}/")', READS),
        ('id.rpartition("/")[0]', READS),
        ('scope.split("/")', READS),
        ("PATTERN.search(event.key)", MATCHES),
        ("re.fullmatch(PATTERN, origin.id)", MATCHES),
        (r're.compile(r"/[im]\d+\.\d+/")', MATCHES),
        (r're.compile(r"/i(\d+)$")', MATCHES),
        (r're.compile(r"/(intent|paused)\d+$")', MATCHES),
    ],
)
def test_code_that_makes_or_reads_keys_is_found(source: str, fault: str) -> None:
    assert fault in [found for _, found in key_faults(source)]


@pytest.mark.parametrize(
    "source",
    [
        "keys.inside(ctx._scope, f'user{number}')",
        'f"event `{key}`. Its scope is {scope}!"',
        'f"{key}. {text}"',
        'f"{folder}/{name}"',
        'f"{self.key(ctx)}/{number}"',
        'f"{origin.id}.{count}"',
        'f"{run_id}:{origin.id}"',
        '"/" in path',
        'path.rpartition("/")',
        'key.replace("~", "~0")',
        r're.compile(r"/fork(?:\s+(.*))?")',
        "PATTERN.search(text)",
    ],
)
def test_other_code_passes(source: str) -> None:
    assert [*key_faults(source)] == []
