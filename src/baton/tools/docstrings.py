"""What a docstring tells a model: what the tool does, and what each parameter means.

Google, NumPy and Sphinx style. Finding out that there is nothing to parse costs one search and loads no parser.
"""

import re
from inspect import cleandoc
from typing import Literal, TypeAlias, cast

from .signature import FunctionSignature, call_method_of

_Style: TypeAlias = Literal["google", "numpy", "sphinx"]

_FURTHER = r"Returns?|Yields?|Receives?|Raises|Exceptions?|Warns|Examples?|Attributes"
_PARAMETERS: dict[_Style, re.Pattern[str]] = {
    "numpy": re.compile(r"^(?:Other )?Parameters[ ]*\n-{3,}[ ]*$", re.MULTILINE),
    "google": re.compile(
        r"^(?:Args|Arguments|Params|Parameters|(?:Keyword|Other) (?:Args|Arguments|Parameters)):[ ]*$", re.MULTILINE
    ),
    "sphinx": re.compile(r"^:(?:param|parameter|arg|argument|key|keyword)\b[^:\n]*:", re.MULTILINE),
}
_OTHER_SECTIONS = re.compile(
    rf"^(?:{_FURTHER}):[ ]*$"
    rf"|^(?:{_FURTHER}|See Also|Notes|References)[ ]*\n-{{3,}}[ ]*$"
    r"|^:(?:type|raises?|except|exception|returns?|rtype|var|ivar|cvar|vartype)\b[^:\n]*:",
    re.MULTILINE,
)


def docstring_of(compiled: FunctionSignature) -> str:
    """The docstring of the function, without its indentation; "" if it has none."""
    text = getattr(compiled.definition, "__doc__", None)
    if not text and call_method_of(compiled.function):
        text = type(compiled.function).__doc__
    return cleandoc(text) if text else ""


def description_in(docstring: str) -> str:
    """The text before the sections."""
    sections = (pattern.search(docstring) for pattern in (*_PARAMETERS.values(), _OTHER_SECTIONS))
    return docstring[: min((found.start() for found in sections if found), default=None)].strip()


def parameters_in(docstring: str) -> dict[str, str]:
    """What the docstring says about each parameter it mentions."""
    styles: list[_Style] = [style for style, pattern in _PARAMETERS.items() if pattern.search(docstring)]
    if not styles:
        return {}
    import griffe

    told: dict[str, str] = {}
    for section in griffe.parse(griffe.Docstring(docstring), styles[0], warnings=False):
        if section.kind.value in ("parameters", "other parameters"):
            for parameter in cast(list[griffe.DocstringParameter], section.value):
                told[parameter.name] = " ".join(parameter.description.split())
    return told
