"""What becomes of an error in a tool: something the model reads, or the end of the run."""

from collections.abc import Callable
from logging import getLogger
from typing import Any, Literal, TypeAlias, cast

from ..errors import RunError, SetupError, ToolError, ToolFailedError, ToolResultError, ToolTimeoutError
from .base import ToolResult

logger = getLogger("baton.tools")

ErrorPolicy: TypeAlias = Literal["return", "raise"] | Callable[[Exception], str]
"""Tell the model what happened, end the run, or tell the model what a function of yours makes of the error."""

NOT_FOR_THE_MODEL = (SetupError, RunError, ToolFailedError, ToolResultError)
"""What no policy applies to: the model cannot mend it, so it always ends the run."""


def checked_policy(policy: Any, tool_name: str) -> ErrorPolicy:
    """The same policy, if it is one. Raises SetupError, so that a misspelt word is not found out by the first error."""
    if policy in ("return", "raise") or callable(policy):
        return cast(ErrorPolicy, policy)
    raise SetupError(f'tool `{tool_name}` has on_error={policy!r}; use "return", "raise" or a function (error) -> text')


def outcome_of_error(error: Exception, tool_name: str, *, policy: ErrorPolicy) -> ToolResult:
    """The error as the model will read it. Raises ToolFailedError if the policy is to end the run."""
    # A ToolError is a tool's own word to the model, whatever the policy; but nobody wrote a timeout's for this case.
    if isinstance(error, ToolError) and not isinstance(error, ToolTimeoutError):
        return ToolResult(str(error), is_error=True)
    if policy == "raise":
        raise ToolFailedError(_told(error, tool_name), tool=tool_name) from error
    logger.warning("tool `%s` failed; the model is told", tool_name, exc_info=error)
    text = _told(error, tool_name) if policy == "return" else policy(error)
    return ToolResult(text, is_error=True)


def _told(error: Exception, tool_name: str) -> str:
    if isinstance(error, ToolTimeoutError):
        return str(error)
    return f"tool `{tool_name}` failed: {type(error).__name__}: {error}".removesuffix(": ")
