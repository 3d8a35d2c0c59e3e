"""`--env-file`: the parser, and variables for the programs that commands run."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonkit.cli.cli_errors import TargetError
from batonkit.cli.env_file import load_env_file, parse_env


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {}),
        ("\n  \n# nothing\n   # more\n", {}),
        ("A=1", {"A": "1"}),
        ("A=1\nB=2\n", {"A": "1", "B": "2"}),
        ("\ufeffA=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
        ("  export A=1\nexport\tB = 2 ", {"A": "1", "B": "2"}),
        ("export=1", {"export": "1"}),
        ("A=", {"A": ""}),
        ("A=''\nB=\"\"", {"A": "", "B": ""}),
        ("A=a b  c  # comment", {"A": "a b  c"}),
        ("A=# comment", {"A": ""}),
        ("A=a#b", {"A": "a#b"}),
        ("A=it's", {"A": "it's"}),
        ("A=x=y==", {"A": "x=y=="}),
        ("A='a # b' # comment", {"A": "a # b"}),
        ("A='$HOME \\n'", {"A": "$HOME \\n"}),
        ('A="a\\n\\"b\\" \\\\ \\$C \\q"', {"A": 'a\n"b" \\ $C \\q'}),
        ('A="one\ntwo" # comment\nB=3', {"A": "one\ntwo", "B": "3"}),
        (
            "KEY='-----BEGIN-----\nabc=\n# not a comment\n-----END-----'\nB=3",
            {"KEY": "-----BEGIN-----\nabc=\n# not a comment\n-----END-----", "B": "3"},
        ),
        ("A=1\nA=2", {"A": "2"}),
        ("A=$B ${C}", {"A": "$B ${C}"}),
    ],
)
def test_parse(text: str, wanted: dict[str, str]) -> None:
    assert parse_env(text) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A=1\nnonsense", "x.env, line 2: it is not NAME=value; write NAME=value, or # before a comment"),
        ("1A=1", "x.env, line 1: it is not NAME=value"),
        ("=secret", "line 1: it is not NAME=value"),
        ("export A", "line 1: it is not NAME=value"),
        ("# one\nA='two\nthree\n", "line 2: the quote before the value of A is not closed; end it with '"),
        ('A="1"\nB="two\n\nthree\\"', 'line 2: the quote before the value of B is not closed; end it with "'),
        ('A="one\ntwo"\nB=1\n?', "line 4: it is not NAME=value"),
        ('A="se"cret', "line 1: there is text after the quoted value of A; put a # before a comment"),
        ("A=se\0cret", "line 1: the value of A has a NUL character"),
    ],
)
def test_an_invalid_line_is_named_by_its_number(text: str, message: str) -> None:
    with pytest.raises(TargetError) as caught:
        parse_env(text, "x.env")
    assert message in str(caught.value)
    # A value may be a secret.
    assert "cret" not in str(caught.value)


_values = st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=20)


@given(values=st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True), _values, max_size=4))
def test_any_value_can_be_written_in_double_quotes(values: dict[str, str]) -> None:
    def quote(value: str) -> str:
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    assert parse_env("\n".join(f"export {name}={quote(value)} # x" for name, value in values.items())) == values


@given(text=st.text("AB= \n\"'\\#export\0", max_size=30))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        values = parse_env(text)
    except TargetError as error:
        values = {}
        assert_names_a_line(error)
    assert all("\0" not in value for value in values.values())


def assert_names_a_line(error: TargetError) -> None:
    assert ", line " in str(error)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the variables that the tests set."""
    for name in ("BATON_TEST_A", "BATON_TEST_B", "BATON_MODEL", "BATON_STORE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


AGENT = """\
import os
agent = Agent("A", model=ScriptedModel([f"A={os.environ.get('BATON_TEST_A')} B={os.environ.get('BATON_TEST_B')}"]))
"""


@pytest.mark.usefixtures("environment")
def test_the_environment_is_never_overridden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATON_TEST_A", "")
    file = tmp_path / "x.env"
    file.write_text("BATON_TEST_A=1\nBATON_TEST_B=2")
    assert load_env_file(file) == ["BATON_TEST_B"]
    assert (os.environ["BATON_TEST_A"], os.environ["BATON_TEST_B"]) == ("", "2")


@pytest.mark.usefixtures("environment")
def test_the_default_file_is_read_if_it_is_there(write: Any, baton: Any) -> None:
    write(AGENT)
    assert baton("run", "desk:agent", "hi", "-q").stdout == "A=None B=None\n"


@pytest.mark.usefixtures("environment")
def test_the_default_file_in_the_current_folder(write: Any, baton: Any, tmp_path: Path) -> None:
    write(AGENT)
    (tmp_path / ".env").write_text("BATON_TEST_A=1")
    assert baton("run", "desk:agent", "hi", "-q").stdout == "A=1 B=None\n"


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("is_before", [True, False])
def test_a_given_file_replaces_the_default_one(write: Any, baton: Any, tmp_path: Path, is_before: bool) -> None:
    write(AGENT)
    (tmp_path / ".env").write_text("BATON_TEST_A=1\nBATON_TEST_B=2")
    (tmp_path / "other.env").write_text("BATON_TEST_A=3")
    option, command = ["--env-file", "other.env"], ["run", "desk:agent", "hi", "-q"]
    result = baton(*option, *command) if is_before else baton(*command, *option)
    assert result.stdout == "A=3 B=None\n"


@pytest.mark.usefixtures("environment")
def test_options_read_their_variables_from_the_file(write: Any, baton: Any, tmp_path: Path) -> None:
    write(AGENT)
    assert baton("run", "desk:agent", "hi", "--store", "kept.db").exit_code == 0
    (tmp_path / ".env").write_text("BATON_STORE=missing.db")
    (tmp_path / "other.env").write_text("BATON_STORE=kept.db")
    listed = baton("runs", "ls", "--env-file", "other.env")
    assert (listed.exit_code, "completed" in listed.output) == (0, True)


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (b"A='1", (), "error: .env, line 1: the quote before the value of A is not closed"),
        (b"A=1\n\xff=2", (), "error: .env, line 2: it is not UTF-8; save the file as UTF-8"),
        (b"", ("--env-file", "no\x1b[31m.env"), "error: cannot read --env-file no␛[31m.env: No such file or directory"),
        (b"", ("--env-file", "."), "error: cannot read --env-file .: Is a directory"),
    ],
)
def test_errors_are_one_line_and_sanitised(
    write: Any, baton: Any, tmp_path: Path, content: bytes, arguments: tuple[str, ...], message: str
) -> None:
    write(AGENT)
    (tmp_path / ".env").write_bytes(content)
    result = baton("run", "desk:agent", "hi", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1
    if arguments:
        assert baton(*arguments, "run", "desk:agent", "hi").stderr == result.stderr


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("run", "--help"), ("runs", "ls", "--help")])
def test_help_works_with_an_invalid_file(write: Any, baton: Any, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / ".env").write_text("?")
    assert baton(*arguments).exit_code == 0
