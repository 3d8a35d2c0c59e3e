"""The reference: one page per main class, which it begins with, and signatures that show what callers write."""

import inspect
import re
from collections.abc import Iterator
from pydoc import locate
from typing import Any, NamedTuple, cast

import griffe
import pytest
import yaml
from tests.architecture.public import PACKAGES, public_names
from tests.architecture.shape import REPOSITORY

import batonkit
from batonkit import Agent, RunResult
from batonkit.runs import ResumeArgs, RunArgs

REFERENCE = REPOSITORY / "docs" / "reference"
MAIN = {
    "agent": "batonkit.agents.Agent",
    "runner": "batonkit.runs.Runner",
    "handoff": "batonkit.handoffs.handoff",
    "tool": "batonkit.tools.tool",
    "run-context": "batonkit.context.RunContext",
    "run-result": "batonkit.runs.RunResult",
    "store": "batonkit.stores.Store",
}
"""The pages of main classes and functions, and what they begin with."""
GROUPS = ["models-and-messages", "workflows-and-middleware", "serving", "testing", "errors"]
NOT_FOR_USERS = {
    "team": set(public_names("team")),
    "inspection": set(public_names("inspection")) - {"write_test"},
    "log": {"LOG_FORMAT", "EventDecoder", "EventRef", "HistorySummary", "OpenedHistory", "RequestRecord"},
}
"""Names that packages share with servers and Studio; the reference leaves them out."""
SAME_NAME_ELSEWHERE = {"batonkit.log.Default", "batonkit.log.BreakLoop"}
"""Names that the reference shows in the package that users import them from."""


class Directive(NamedTuple):
    """A line `::: name` of a page, and its options."""

    name: str
    options: dict[str, Any]


def directives(page: str) -> list[Directive]:
    text = (REFERENCE / f"{page}.md").read_text(encoding="utf-8")
    found = re.findall(r"^::: (\S+)\n(?:    options:\n((?:      .*\n)*))?", text, re.MULTILINE)
    return [Directive(name, yaml.safe_load(block) or {}) for name, block in found]


@pytest.fixture(scope="module")
def package() -> griffe.Module:
    loader = griffe.GriffeLoader(
        search_paths=[REPOSITORY / "src"],
        extensions=griffe.load_extensions(str(REPOSITORY / "tools" / "docs_extension.py")),
        docstring_parser=griffe.Parser.google,
        docstring_options={"warnings": False},
    )
    loaded = loader.load("batonkit")
    loader.resolve_aliases()
    return cast("griffe.Module", loaded)


def test_the_reference_has_a_page_per_main_class_and_few_others() -> None:
    pages = ["index", *MAIN, *GROUPS]
    navigation = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    assert {page.stem for page in REFERENCE.iterdir()} == set(pages)
    assert re.findall(r"reference/([\w-]+)\.md", navigation) == pages


@pytest.mark.parametrize("page", MAIN)
def test_a_page_begins_with_its_main_class(page: str) -> None:
    before, _, _ = (REFERENCE / f"{page}.md").read_text(encoding="utf-8").partition("\n:::")
    main = directives(page)[0]
    assert main.name == MAIN[page]
    assert main.options["show_root_heading"] is False, "the title of the page is its heading"
    assert len([line for line in before.splitlines() if line]) <= 2, "a title and a line; the class is on the screen"


def test_the_page_of_the_runner_shows_run_before_all_else() -> None:
    runner = directives("runner")[0]
    assert runner.options["extra"] == {"first": "run"}
    assert "!^run$" in runner.options["filters"], "otherwise it is shown twice"


def test_the_page_of_the_result_shows_the_output_first_and_hides_nothing() -> None:
    shown: list[str] = directives("run-result")[0].options["members"]
    attributes = {"status", "agent", "error"}
    assert shown[0] == "output"
    assert sorted(shown) == sorted({name for name in dir(RunResult) if name[0] != "_"} | attributes)


def test_every_public_name_is_on_one_page() -> None:
    shown = sorted(name for page in [*MAIN, *GROUPS] for directive in directives(page) for name in _names(directive))
    public = {
        f"batonkit.{package}.{name}"
        for package in PACKAGES
        for name in set(public_names(package)) - NOT_FOR_USERS.get(package, set())
    }
    assert [name for name in shown if name.count(".") == 2] == sorted(public - SAME_NAME_ELSEWHERE)


def _names(directive: Directive) -> Iterator[str]:
    """Yield what a directive shows: one name, some names of a package, or all of them."""
    _, _, path = directive.name.partition(".")
    if path.count(".") and inspect.ismodule(locate(directive.name)):
        return
    if path in PACKAGES:
        members: list[str] = directive.options.get("members") or public_names(path)
        yield from (f"{directive.name}.{member}" for member in members)
    else:
        yield directive.name


def test_the_index_lists_every_name_of_the_package() -> None:
    index = (REFERENCE / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"\[`(\w+)`\]\[batonkit\.", index)
    assert sorted(listed) == sorted(batonkit.__all__)


def test_a_class_shows_the_parameters_that_it_has(package: griffe.Module) -> None:
    shown = cast("griffe.Class", package["agents.Agent"])
    signature: str = shown.extra["reference"]["signature"]
    assert {each.name for each in shown.parameters} == set(inspect.signature(Agent).parameters)
    assert '\n    name, *, description="", instructions="", model=None, model_settings=None, tools=(),' in signature
    assert "output_type=str" in signature
    assert "Sequence[" in str(shown.parameters["tools"].annotation)


@pytest.mark.parametrize(("method", "keywords"), [("run", RunArgs), ("stream", RunArgs), ("resume", ResumeArgs)])
def test_keywords_of_a_typed_dictionary_are_parameters(package: griffe.Module, method: str, keywords: Any) -> None:
    function = cast("griffe.Function", package[f"runs.Runner.{method}"])
    assert function.docstring is not None
    (section,) = [each for each in function.docstring.parsed if isinstance(each, griffe.DocstringSectionParameters)]
    described = {each.name: each.description for each in section.value}
    for name in keywords.__annotations__:
        assert function.parameters[name].kind is griffe.ParameterKind.keyword_only
        assert described[name]
    assert not {"args", "**args"} & (described.keys() | {each.name for each in function.parameters})


def test_keywords_show_their_defaults(package: griffe.Module) -> None:
    parameters = cast("griffe.Function", package["runs.Runner.run"]).parameters
    defaults = {each.name: each.default for each in parameters}
    expected = {"context": "None", "start_at": '"active"', "owner": '""', "when_busy": '"error"'}
    assert {name: defaults[name] for name in expected} == expected


def test_nothing_shows_what_only_type_checkers_read(package: griffe.Module) -> None:
    written = dict(_written(package))
    assert {name: text for name, text in written.items() if re.search(r"Unpack\[|\bcast\(", text)} == {}


def _written(parent: griffe.Module | griffe.Class) -> Iterator[tuple[str, str]]:
    """Yield the parameters of functions and the values of constants, as the reference writes them."""
    for member in parent.members.values():
        if isinstance(member, griffe.Function):
            for each in member.parameters:
                yield f"{member.path}({each.name})", f"{each.annotation} = {each.default}"
        elif isinstance(member, griffe.Attribute) and member.name[0] != "_":
            yield member.path, f"{member.annotation} = {member.value}"
        elif isinstance(member, griffe.Module | griffe.Class) and member.name != "cli":
            yield from _written(member)
