"""The bare call of a function: arguments in, outcome out. Nobody is asked, and no clock runs."""

from collections.abc import Awaitable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from ..context import RunContext
from ..messages import ToolSpec
from .base import ToolResult
from .docstrings import description_in, docstring_of, parameters_in
from .failures import NOT_FOR_THE_MODEL, ErrorPolicy, outcome_of_error
from .results import to_tool_result
from .signature import FunctionSignature, Source, resolved
from .threads import in_thread

if TYPE_CHECKING:
    from .arguments import ArgumentParser


class FunctionInvoker:
    """A tool that calls a function. Its schema and validator are compiled at first use, then never again."""

    def __init__(
        self,
        signature: FunctionSignature,
        *,
        description: str | None,
        on_error: ErrorPolicy,
        return_directly: bool,
        thread: bool,
        strict: bool,
    ) -> None:
        self._signature = signature
        self._name = signature.tool
        self._function = signature.function
        self._is_async = signature.is_async
        self._description = description
        self._on_error: ErrorPolicy = on_error
        self._return_directly = return_directly
        self._thread = thread
        self._strict = strict

    @property
    def spec(self) -> ToolSpec:
        """What the model is told."""
        return self._spec

    @cached_property
    def _spec(self) -> ToolSpec:
        described = self._description
        if described is None:
            described = description_in(docstring_of(self._signature))
        arguments, _ = self._compiled
        return ToolSpec(self._name, described, arguments.schema, self._strict)

    @cached_property
    def _compiled(self) -> "tuple[ArgumentParser, tuple[tuple[str, Source], ...]]":
        from .arguments import ArgumentParser

        hints, sources = resolved(self._signature)
        arguments = ArgumentParser(
            self._name,
            hints,
            defaults=self._signature.defaults,
            descriptions=parameters_in(docstring_of(self._signature)),
        )
        return arguments, tuple(sources.items())

    def checked(self, arguments: str) -> dict[str, Any] | ToolResult:
        """What the function would be called with, defaults included; or an outcome that says what does not fit."""
        compiled, sources = self._compiled
        given = compiled.read(arguments)
        if isinstance(given, ToolResult):
            return given
        hidden = dict(sources)
        defaults = {name: value for name, value in self._signature.defaults.items() if name not in hidden}
        return defaults | given

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Call the function with these arguments."""
        compiled, sources = self._compiled
        given = compiled.read(arguments)
        if type(given) is ToolResult:
            return given
        given = cast("dict[str, Any]", given)
        for name, source in sources:
            given[name] = source(ctx)
        try:
            value: Any = await (self._function(**given) if self._is_async else self._call_sync(given))
        except NOT_FOR_THE_MODEL:
            raise
        except Exception as error:  # noqa: BLE001 - here a failure becomes a result
            return outcome_of_error(error, self._name, policy=self._on_error)
        return to_tool_result(value, self._name, is_final=self._return_directly)

    async def _call_sync(self, given: dict[str, Any]) -> Any:
        function = partial(self._function, **given)
        value: Any = await in_thread(function, self._name) if self._thread else function()
        # Lambdas and decorated functions may hand on the coroutine of an async one without being async themselves.
        return await cast(Awaitable[Any], value) if isinstance(value, Awaitable) else value

    def __repr__(self) -> str:
        return f"Invocation({self._name!r})"
