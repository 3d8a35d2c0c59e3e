"""Targets such as `module:agent` are resolved; errors suggest valid targets."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batonkit import BaseAgent, Runner, SetupError
from batonkit.cli.cli_errors import TargetError
from batonkit.cli.targets import find_target, load_target

Write = Callable[..., Path]
Invoke = Callable[..., Any]


def name_of(reference: str) -> str:
    target = load_target(reference)
    return target.team.root if isinstance(target, Runner) else target.name


def error_of(reference: str) -> str:
    with pytest.raises(TargetError) as caught:
        load_target(reference)
    return str(caught.value)


def test_a_module_in_the_current_folder_is_found(write: Write) -> None:
    write('router = Agent("Router")')
    assert name_of("desk:router") == "Router"


def test_a_module_in_a_package_is_found(write: Write) -> None:
    write("", "shop/__init__.py")
    write('router = Agent("Router")', "shop/desk.py")
    assert name_of("shop.desk:router") == "Router"


@pytest.mark.parametrize("reference", ["lessons/01-one.agent.py:agent", "lessons/01-one.agent:agent", "./top.py:agent"])
def test_a_file_whose_name_is_not_an_identifier_is_found(write: Write, reference: str) -> None:
    write('agent = Agent("A")', "lessons/01-one.agent.py")
    write('agent = Agent("A")', "top.py")
    assert name_of(reference) == "A"


def test_a_file_imports_its_neighbours_and_its_main_block_does_not_run(write: Write) -> None:
    write('HERE = "Neighbour"', "lessons/near.py")
    write(
        """
        from near import HERE
        agent = Agent(HERE)
        if __name__ == "__main__":
            raise RuntimeError("not imported but run")
        """,
        "lessons/one.py",
    )
    assert name_of("lessons/one.py:agent") == "Neighbour"


def test_a_file_named_like_a_loaded_module_does_not_replace_it(write: Write) -> None:
    import json

    write('agent = Agent("A")', "json.py")
    assert name_of("json.py:agent") == "A"
    assert "agent" not in vars(json)


def test_a_target_can_be_a_runner_a_function_a_class_or_a_dotted_name(write: Write) -> None:
    write(
        """
        class Teams:
            first = Agent("First")
        class Own(BaseAgent):
            name = "Own"
            async def run(self, ctx): ...
        def make(size: int = 3): return Agent(f"Made of {size}")
        runner = Runner(Agent("Root"))
        """
    )
    assert isinstance(load_target("desk:runner"), Runner)
    assert name_of("desk:make") == "Made of 3"
    assert name_of("desk:Teams.first") == "First"
    assert isinstance(load_target("desk:Own"), BaseAgent)


def test_without_a_name_the_only_runner_is_used(write: Write) -> None:
    write('a = Agent("A"); b = Agent("B"); runner = Runner(a); same = runner')
    assert isinstance(load_target("desk"), Runner)


@pytest.mark.parametrize(
    "edge",
    [
        "root = Agent('Root', sub_agents=[child])",
        "root = Agent('Root', handoffs=[child])",
        "root = Agent('Root', sub_agents=[Agent('Between', handoffs=['Child'])], handoffs=[handoff(child)])",
        "def to_child(): return child\nroot = Agent('Root', tools=[to_child])",
        "root = then_transfer(child, to='Other')",
    ],
)
def test_without_a_name_the_only_root_agent_is_used(write: Write, edge: str) -> None:
    write(f"child = Agent('Child')\n{edge}")
    root = load_target("desk")
    assert root is load_target("desk:root")


def test_without_a_name_several_candidates_are_an_error(write: Write) -> None:
    write('a = Agent("A"); b = Agent("B"); c = Agent("C", sub_agents=[a])')
    assert error_of("desk") == "`desk` has several candidates; name one: `desk:b`, `desk:c`"


def test_without_a_name_the_choice_among_several_is_shown(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write('a = Agent("A"); b = Agent("B", sub_agents=[a]); same = b; runner = Runner(b)')
    assert find_target("desk").__class__.__name__ == "Runner"
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "using `desk:runner`; to use another, name it: `desk:a`, `desk:same`\n")
    find_target("desk:runner")
    assert capsys.readouterr().err == ""


def test_without_a_name_the_only_candidate_needs_no_words(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write('a = Agent("A"); same = a')
    find_target("desk")
    assert capsys.readouterr().err == ""


def test_without_a_name_a_cycle_is_ambiguous(write: Write) -> None:
    write('a = Agent("A", handoffs=["B"]); b = Agent("B", handoffs=[a])')
    assert "name one: `desk:a`, `desk:b`" in error_of("desk")


def test_without_a_name_a_module_without_agents_is_an_error(write: Write) -> None:
    write("")
    assert "`desk` has no agents or runners" in error_of("desk")


def test_an_unknown_module_without_a_colon_explains_the_syntax(write: Write) -> None:
    message = error_of("router")
    assert "there is no module `router`, neither installed nor in" in message
    assert "write it as module:agent or path/to/file.py:agent" in message


def test_a_target_without_a_module_is_an_error(write: Write) -> None:
    assert error_of(":router") == ("`:router` has no module; write it as module:agent or path/to/file.py:agent")


def test_an_unknown_module_suggests_a_similar_one(write: Write) -> None:
    write("")
    assert error_of("dekk:router").endswith("did you mean `desk`?")


def test_an_unknown_module_in_a_package_is_an_error(write: Write) -> None:
    write("", "shop/__init__.py")
    assert "there is no module `shop.desk`" in error_of("shop.desk:router")
    assert "there is no module `stop.desk` (there is no `stop`)" in error_of("stop.desk:router")


def test_an_unknown_file_suggests_a_similar_one(write: Write) -> None:
    write("", "lessons/one.py")
    assert error_of("lessons/ine.py:a") == "there is no file `lessons/ine.py`; did you mean `lessons/one.py`?"
    assert "write it as module:agent" in error_of("elsewhere/x.py:a")


@pytest.mark.parametrize("reference", ["desk:agent", "./desk.py:agent"])
def test_a_module_that_imports_a_missing_package_is_an_error(write: Write, reference: str) -> None:
    file = write("import no_such_package_at_all\n")
    message = error_of(reference)
    assert "imports `no_such_package_at_all`, which is not installed" in message
    assert f"{file}, line 5" in message


def test_a_module_that_imports_a_missing_name_is_an_error(write: Write) -> None:
    write("from json import no_such_name\n")
    assert "`desk` cannot be imported: ImportError: cannot import name 'no_such_name'" in error_of("desk:agent")


def test_a_module_with_a_syntax_error_is_an_error(write: Write) -> None:
    file = write("agent = Agent(")
    assert "`desk` cannot be imported: SyntaxError" in error_of("desk:agent")
    assert f"{file}, line 5" in error_of("desk:agent")


def test_a_module_that_exits_is_an_error(write: Write) -> None:
    write("import sys\nsys.exit(0)")
    assert "`desk` exits when it is imported" in error_of("desk:agent")
    assert "`./desk.py` exits when it is imported" in error_of("./desk.py:agent")


@pytest.mark.parametrize("reference", ["desk:agent", "./desk.py:agent"])
def test_setup_errors_are_passed_on(write: Write, reference: str) -> None:
    write('agent = Agent("", description="x")')
    with pytest.raises(SetupError, match="needs a name"):
        load_target(reference)


def test_an_unknown_name_lists_the_candidates(write: Write) -> None:
    write('router = Agent("Router"); runner = Runner(router); number = 3')
    assert error_of("desk:rooter") == ("`desk` has no `rooter`; did you mean `router`? (found: `router`, `runner`)")
    assert error_of("desk:zzz") == "`desk` has no `zzz` (found: `router`, `runner`)"
    assert error_of("desk:router.nme").startswith("`desk:router` has no `nme`; did you mean `name`?")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("number", "`desk:number` is of type int; name an Agent, a Runner, or a function without parameters"),
        ("takes_some", "`desk:takes_some` is of type function; name an Agent"),
        ("gives_text", "`desk:gives_text()` returned an object of type str; name an Agent"),
        ("later", "`desk:later()` returned an awaitable; name an Agent"),
        ("unreadable", "`desk:unreadable` is of type type; name an Agent"),
        ("breaks", "`desk:breaks()` raised ValueError: out of agents"),
    ],
)
def test_a_name_that_is_not_an_agent_is_an_error(write: Write, name: str, message: str) -> None:
    write(
        """
        router = Agent("Router")
        number = 3
        unreadable = type
        def takes_some(size): return router
        def gives_text(): return "router"
        async def later(): return router
        def breaks(): raise ValueError("out of agents")
        """
    )
    assert message in error_of(f"desk:{name}")


def test_missing_target_exits_with_2_without_traceback(baton: Invoke) -> None:
    result = baton("run", "nowhere:agent", "hello")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: there is no module `nowhere`")
    assert "Traceback" not in result.output


def test_ctrl_c_while_loading_ends_with_130(write: Write, baton: Invoke) -> None:
    write("raise KeyboardInterrupt")
    assert baton("check", "desk").exit_code == 130


def test_a_setup_error_in_a_function_is_passed_on(write: Write) -> None:
    write('def make(): return Agent("")')
    with pytest.raises(SetupError, match="needs a name"):
        load_target("desk:make")


def test_a_target_can_be_loaded_inside_an_event_loop(write: Write) -> None:
    """Loading starts no event loop."""
    write('agent = Agent("A")')

    async def inside() -> str:
        return name_of("desk:agent")

    assert asyncio.run(inside()) == "A"


@pytest.mark.parametrize("command", ["run", "chat", "mcp"])
@pytest.mark.parametrize(
    "model", ["scripted_or_real(['hi'])", "None"], ids=["a model that reads BATON_MODEL", "no model"]
)
def test_an_unknown_model_is_blamed_on_the_option(write: Write, baton: Invoke, command: str, model: str) -> None:
    write(f'agent = Agent("Desk", model={model})')
    text = ["hi"] if command == "run" else []
    result = baton(command, "desk:agent", *text, "--model", "foo:bar", input="hi\n")
    assert result.exit_code != 0
    assert "the model `foo:bar` needs the provider `foo`" in result.stderr
    assert "error: --model: " in result.stderr
    assert "BATON_MODEL" not in result.stderr


def test_a_provider_that_the_target_registers_is_known(write: Write, baton: Invoke) -> None:
    write(
        """
        from batonkit.models import register_model
        register_model("mine", lambda name: ScriptedModel([f"I am {name}."]))
        agent = Agent("Desk")
        """
    )
    assert baton("run", "desk:agent", "hi", "--model", "mine:own", "--quiet").stdout == "I am own.\n"


@pytest.mark.parametrize("command", [["serve"], ["mcp", "--http"]])
def test_an_open_address_names_the_options(write: Write, baton: Invoke, command: list[str]) -> None:
    write('agent = Agent("Desk", model=ScriptedModel(["hi"]))')
    result = baton(*command, "desk:agent", "--host", "0.0.0.0")
    assert result.exit_code == 1
    assert "--host 0.0.0.0 can be reached from other machines; say who may call with --token-env" in result.stderr
    assert "auth=" not in result.stderr
    assert "allow_anonymous=" not in result.stderr


def test_mcp_with_a_runner_names_the_options(write: Write, baton: Invoke) -> None:
    write('runner = Runner(Agent("Desk", model=ScriptedModel(["hi"])), store="memory:")')
    result = baton("mcp", "desk:runner", "--store", "runs.db")
    assert result.exit_code == 2
    assert (
        "`desk:runner` is a Runner, which has its own model and store; leave --model and --store out" in result.stderr
    )
