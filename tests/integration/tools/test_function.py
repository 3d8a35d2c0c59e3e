"""Tools made of functions."""

import subprocess
import sys


def test_defining_tools_loads_neither_pydantic_nor_griffe() -> None:
    program = """
import sys
from batonkit.tools import tool
@tool(timeout=1, needs_approval=True)
def f(a: int) -> str:
    '''Does it.

    Args:
        a: a number
    '''
    return str(a)
early = {name.partition(".")[0] for name in sys.modules} & {"pydantic", "griffe", "pydantic_core"}
assert not early, early
assert f.spec.parameters["properties"]["a"]["description"] == "a number"
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
