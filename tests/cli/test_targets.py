"""`module:agent` finds what a person means, and says what would work where it finds nothing."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from baton import BaseAgent, Runner, SetupError
from baton.cli.errors import TargetError
from baton.cli.targets import load_target

Write = Callable[..., Path]
Invoke = Callable[..., Any]


def name_of(reference: str) -> str:
    target = load_target(reference)
    return target.team.root if isinstance(target, Runner) else target.name


def complaint(reference: str) -> str:
    with pytest.raises(TargetError) as caught:
        load_target(reference)
    return str(caught.value)


def test_a_module_in_the_current_folder(write: Write) -> None:
    write('router = Agent("Router")')
    assert name_of("desk:router") == "Router"


def test_a_module_in_a_package(write: Write) -> None:
    write("", "shop/__init__.py")
    write('router = Agent("Router")', "shop/desk.py")
    assert name_of("shop.desk:router") == "Router"


@pytest.mark.parametrize("reference", ["lessons/01-one.agent.py:agent", "lessons/01-one.agent:agent", "./top.py:agent"])
def test_a_file_whose_name_is_no_module_name(write: Write, reference: str) -> None:
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


def test_a_runner_a_function_a_class_and_a_dotted_name(write: Write) -> None:
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


def test_without_a_name_the_only_runner_is_taken(write: Write) -> None:
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


def test_without_a_name_several_that_could_be_meant(write: Write) -> None:
    write('a = Agent("A"); b = Agent("B"); c = Agent("C", sub_agents=[a])')
    assert complaint("desk") == "`desk` has several candidates; name one: `desk:b`, `desk:c`"


def test_without_a_name_a_cycle_is_ambiguous(write: Write) -> None:
    write('a = Agent("A", handoffs=["B"]); b = Agent("B", handoffs=[a])')
    assert "name one: `desk:a`, `desk:b`" in complaint("desk")


def test_without_a_name_nothing_there(write: Write) -> None:
    write("")
    assert "`desk` has no agents or runners" in complaint("desk")


def test_no_colon_and_no_such_module(write: Write) -> None:
    message = complaint("router")
    assert "there is no module `router`, neither installed nor in" in message
    assert "write it as module:agent or path/to/file.py:agent" in message


def test_nothing_before_the_colon(write: Write) -> None:
    assert complaint(":router") == ("`:router` has no module; write it as module:agent or path/to/file.py:agent")


def test_no_such_module_but_one_like_it(write: Write) -> None:
    write("")
    assert complaint("dekk:router").endswith("did you mean `desk`?")


def test_no_such_module_in_a_package(write: Write) -> None:
    write("", "shop/__init__.py")
    assert "there is no module `shop.desk`" in complaint("shop.desk:router")
    assert "there is no module `stop.desk` (there is no `stop`)" in complaint("stop.desk:router")


def test_no_such_file(write: Write) -> None:
    write("", "lessons/one.py")
    assert complaint("lessons/ine.py:a") == "there is no file `lessons/ine.py`; did you mean `lessons/one.py`?"
    assert "write it as module:agent" in complaint("elsewhere/x.py:a")


@pytest.mark.parametrize("reference", ["desk:agent", "./desk.py:agent"])
def test_the_module_is_there_but_imports_one_that_is_not(write: Write, reference: str) -> None:
    file = write("import no_such_package_at_all\n")
    message = complaint(reference)
    assert "imports `no_such_package_at_all`, which is not installed" in message
    assert f"{file}, line 5" in message


def test_the_module_is_there_but_imports_a_name_that_is_not(write: Write) -> None:
    write("from json import no_such_name\n")
    assert "`desk` cannot be imported: ImportError: cannot import name 'no_such_name'" in complaint("desk:agent")


def test_the_module_does_not_parse(write: Write) -> None:
    file = write("agent = Agent(")
    assert "`desk` cannot be imported: SyntaxError" in complaint("desk:agent")
    assert f"{file}, line 5" in complaint("desk:agent")


def test_the_module_ends_the_program(write: Write) -> None:
    write("import sys\nsys.exit(0)")
    assert "`desk` exits when it is imported" in complaint("desk:agent")
    assert "`./desk.py` exits when it is imported" in complaint("./desk.py:agent")


@pytest.mark.parametrize("reference", ["desk:agent", "./desk.py:agent"])
def test_setup_errors_are_passed_on(write: Write, reference: str) -> None:
    write('agent = Agent("", description="x")')
    with pytest.raises(SetupError, match="needs a name"):
        load_target(reference)


def test_a_missing_name_lists_what_is_there(write: Write) -> None:
    write('router = Agent("Router"); runner = Runner(router); number = 3')
    assert complaint("desk:rooter") == ("`desk` has no `rooter`; did you mean `router`? (found: `router`, `runner`)")
    assert complaint("desk:zzz") == "`desk` has no `zzz` (found: `router`, `runner`)"
    assert complaint("desk:router.nme").startswith("`desk:router` has no `nme`; did you mean `name`?")


@pytest.mark.parametrize(
    ("name", "is_what"),
    [
        ("number", "`desk:number` is of type int; name an Agent, a Runner, or a function without parameters"),
        ("takes_some", "`desk:takes_some` is of type function; name an Agent"),
        ("gives_text", "`desk:gives_text()` returned an object of type str; name an Agent"),
        ("later", "`desk:later()` returned an awaitable; name an Agent"),
        ("unreadable", "`desk:unreadable` is of type type; name an Agent"),
        ("breaks", "`desk:breaks()` raised ValueError: out of agents"),
    ],
)
def test_a_name_that_is_no_agent(write: Write, name: str, is_what: str) -> None:
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
    assert is_what in complaint(f"desk:{name}")


def test_missing_target_exits_with_2_without_traceback(baton: Invoke) -> None:
    result = baton("run", "nowhere:agent", "hello")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: there is no module `nowhere`")
    assert "Traceback" not in result.output


def test_ctrl_c_while_loading_ends_with_130(write: Write, baton: Invoke) -> None:
    write("raise KeyboardInterrupt")
    assert baton("check", "desk").exit_code == 130


def test_a_function_that_makes_an_agent_that_cannot_work(write: Write) -> None:
    write('def make(): return Agent("")')
    with pytest.raises(SetupError, match="needs a name"):
        load_target("desk:make")


def test_a_run_may_be_loaded_inside_a_loop(write: Write) -> None:
    """Loading starts no event loop of its own."""
    write('agent = Agent("A")')

    async def inside() -> str:
        return name_of("desk:agent")

    assert asyncio.run(inside()) == "A"
