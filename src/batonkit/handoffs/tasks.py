"""Task handoffs, as the target's model sees them: the tools that end a task, and the section of its instructions."""

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ..errors import SetupError
from ..log.entries import FINISH_TOOL as FINISH_TOOL
from ..messages import ToolSpec, object_schema
from ..messages.messages import INVALID_JSON
from .input_type import TypedJson, describe_problems, strict_schema

CANCEL_TOOL = "cancel_task"
"""The name of the tool that ends a task without a result."""
TASK_TOOLS = (FINISH_TOOL, CANCEL_TOOL)
"""The names of the tools that end a task."""

_Language: TypeAlias = Literal["en", "zh"]

_SECTION = {
    "en": """\
[{caller}] has handed you a task. You stay in the conversation until the task has ended: what you write goes to the \
user, and you read the user's reply.
- When the task is done, call `finish_task` with its result. [{back}] then continues and does not need your words.
- If it cannot or need not be done, call `cancel_task` with the reason.""",
    "zh": """\
[{caller}] 交给你一项任务。在任务结束之前，对话一直由你负责：你写的内容会发送给用户，你会读到用户的回复。
- 任务完成后，请调用 `finish_task` 并给出结果，随后由 [{back}] 继续。
- 如果任务无法完成或不再需要，请调用 `cancel_task` 并说明原因。""",
}
_FINISH = {
    "en": "Finish your task and give its result to [{back}], who continues the conversation.",
    "zh": "完成你的任务，把结果交给 [{back}]，由它继续对话。",
}
_CANCEL = {
    "en": "End your task without a result, because it cannot or need not be done. [{back}] continues the conversation.",
    "zh": "任务无法完成或不再需要时，不带结果地结束任务，由 [{back}] 继续对话。",
}
_RESULT = {"en": "The result of the task.", "zh": "任务的结果。"}
_REASON = {"en": "Why the task ends without a result.", "zh": "任务没有结果的原因。"}


class _FinishArguments(Struct):
    result: msgspec.Raw


class _TextArguments(Struct):
    result: str


class _CancelArguments(Struct):
    reason: str = ""


_parse_finish = msgspec.json.Decoder(_FinishArguments).decode
_parse_text = msgspec.json.Decoder(_TextArguments).decode
_parse_cancel = msgspec.json.Decoder(_CancelArguments).decode


class TaskResultParser:
    """Validates the results of tasks."""

    def __init__(self, target: str, kind: Any) -> None:
        from pydantic import ValidationError

        what = f"the result_type of the handoff to `{target}`"
        typed = TypedJson(kind, what, "result")
        schema = typed.json_schema
        if not typed.is_wrapped:
            definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
            schema = {**object_schema({"result": schema}), **definitions}
        self.type_name = typed.type_name
        self.is_strict = True
        self.schema = schema
        try:
            self.schema = strict_schema(schema, what)
        except SetupError:
            self.is_strict = False
        self._adapter = typed.adapter
        self._validation_error = ValidationError

    def parse(self, text: bytes) -> Any:
        """Validate a result that is JSON text; return it as JSON data.

        Raises:
            ValueError: Lists the problems.
        """
        try:
            value = self._adapter.validate_json(text)
        except self._validation_error as error:
            raise ValueError(describe_problems(error, "the result")) from None
        return self._adapter.dump_python(value, mode="json", by_alias=True)

    def convert(self, value: Any) -> Any:
        """Validate a result that code gave; return it as JSON data.

        Raises:
            ValueError: Lists the problems.
        """
        try:
            checked = self._adapter.validate_python(value)
        except self._validation_error as error:
            raise ValueError(describe_problems(error, "the result")) from None
        return self._adapter.dump_python(checked, mode="json", by_alias=True)


class TaskTools(Struct, frozen=True):
    """The tools and instructions of an agent while it works on a task."""

    return_to: str
    """The agent that control returns to."""
    section: str
    """The section of the instructions."""
    specs: tuple[ToolSpec, ...]
    """The specs of `finish_task` and `cancel_task`."""
    parser: TaskResultParser | None = None
    """The parser of the result; None for text."""

    def parse_result(self, arguments: str) -> Any:
        """Validate the arguments of `finish_task`; return the result as JSON data.

        Raises:
            ValueError: Lists the problems.
        """
        try:
            if self.parser is None:
                return _parse_text(arguments).result
            text = bytes(_parse_finish(arguments).result)
        except INVALID_JSON:
            raise ValueError('arguments must be {"result": …}') from None
        return self.parser.parse(text)

    def parse_reason(self, arguments: str) -> str:
        """Return the reason in the arguments of `cancel_task`.

        Raises:
            ValueError: The arguments are invalid.
        """
        try:
            return _parse_cancel(arguments or "{}").reason
        except INVALID_JSON:
            raise ValueError('arguments must be {"reason": "…"}') from None


def make_task_tools(
    caller: str, return_to: str, parser: TaskResultParser | None, *, language: _Language = "en"
) -> TaskTools:
    """Make the tools for one task."""
    text = object_schema({"result": {"type": "string", "description": _RESULT[language]}})
    schema, is_strict = (text, True) if parser is None else (parser.schema, parser.is_strict)
    reason = object_schema({"reason": {"type": "string", "description": _REASON[language]}})
    return TaskTools(
        return_to,
        _SECTION[language].format(caller=caller, back=return_to),
        (
            ToolSpec(FINISH_TOOL, _FINISH[language].format(back=return_to), schema, strict=is_strict),
            ToolSpec(CANCEL_TOOL, _CANCEL[language].format(back=return_to), reason, strict=True),
        ),
        parser,
    )
