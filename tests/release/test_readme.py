"""Commands and extras are read from the README, and lines that cannot be followed are refused."""

from pathlib import Path

import pytest
from tests.release.readme import Reader, ReadmeError, commands_in, extras_in

PAGE = """
```sh
pip install '.[openai,serving]'  # or pip install 'batonkit[openai]'

baton demo
```
```python
pip install 'batonkit[local]'
```
"""


def test_the_commands_are_the_lines_of_sh_fences() -> None:
    assert [*commands_in(PAGE)] == [
        "pip install '.[openai,serving]'  # or pip install 'batonkit[openai]'",
        "baton demo",
    ]


def test_the_extras_of_every_installation_are_read() -> None:
    assert extras_in(PAGE) == [{"openai", "serving"}, {"openai"}]


async def test_an_unknown_command_is_an_error(tmp_path: Path) -> None:
    reader = Reader("```sh\npip install .\nbaton demo  # downloads a model\n```\n", tmp_path, tmp_path)
    with pytest.raises(ReadmeError, match="how to follow `baton demo  # downloads a model`"):
        await reader.run_commands()


async def test_a_program_without_the_command_of_its_picture_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ReadmeError, match="does not say `baton chat desk:runner"):
        await Reader("```python\nx = 1\n```\n", tmp_path, tmp_path).run_program()
