"""Calls of a context's async methods that must not be forgotten: one without `await` is an error, not a warning."""

from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from .._checks import mark_coroutine_function
from .._wording import show
from ..errors import ToolFailedError
from ..messages import ToolCall

M = TypeVar("M", bound=Callable[..., Coroutine[Any, Any, Any]])
T = TypeVar("T")

ENCLOSING: ContextVar[tuple[object, ...]] = ContextVar("baton_interrupt_checks", default=())
"""The checks that the current code runs in. Tasks that it starts inherit them."""


class _CallingRun(Protocol):
    unawaited: "dict[DeferredCall[Any], str]"


class _CallingContext(Protocol):
    """The context whose method is called."""

    tool_call: ToolCall | None

    @property
    def _run(self) -> _CallingRun: ...
    @property
    def _scope(self) -> str: ...
    @property
    def agent(self) -> str: ...


def must_be_awaited(method: M) -> M:
    """Let an async method of a context return a `DeferredCall`."""

    @wraps(method)
    def defer(ctx: _CallingContext, *args: Any, **kwargs: Any) -> DeferredCall[Any]:
        return DeferredCall(ctx, method, args, kwargs)

    mark_coroutine_function(defer)
    return defer  # pyright: ignore[reportReturnType]


class DeferredCall(Coroutine[Any, Any, T]):
    """A call of a context's method. It begins when it is awaited, and has no value before.

    Using it as a value raises ToolFailedError. Until it is awaited or closed it stands among `RunState.unawaited`, so
    that the tool or agent that made it cannot end without it.
    """

    __slots__ = ("_arguments", "_coroutine", "_ctx", "_method", "enclosing")

    def __init__(
        self,
        ctx: _CallingContext,
        method: Callable[..., Coroutine[Any, Any, T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._ctx = ctx
        self._method = method
        self._arguments = (args, kwargs)
        self._coroutine: Coroutine[Any, Any, T] | None = None
        self.enclosing = ENCLOSING.get()
        """The checks that the code which made the call runs in."""
        ctx._run.unawaited[self] = ctx._scope

    def _begin(self) -> Coroutine[Any, Any, T]:
        if self._ctx._run.unawaited.pop(self, None) is None:
            raise RuntimeError(f"cannot reuse already awaited {self!r}")
        args, kwargs = self._arguments
        self._coroutine = self._method(self._ctx, *args, **kwargs)
        return self._coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        return self._begin().__await__()

    def send(self, value: Any) -> Any:
        """Begin or continue the call, as an event loop does."""
        return (self._coroutine or self._begin()).send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an exception inside the call, as an event loop does to cancel it."""
        return (self._coroutine or self._begin()).throw(*error)

    def close(self) -> None:
        """Give the call up."""
        self._ctx._run.unawaited.pop(self, None)
        if self._coroutine is not None:
            self._coroutine.close()

    def __repr__(self) -> str:
        # Debuggers and error messages show it, so this is no use as a value.
        args, _ = self._arguments
        return f"ctx.{self._method.__name__}({show(args[0]) if args and isinstance(args[0], str) else '…'})"

    def missing_await(self, what: str) -> ToolFailedError:
        """Make the error for code that used or left the call without `await`.

        Args:
            what: The code and what it did.
        """
        call = self._ctx.tool_call
        reason = f"write `await ctx.{self._method.__name__}(…)`: without it, nothing is asked, executed or recorded"
        return ToolFailedError(f"{what} `{self!r}` without `await`; {reason}", tool="" if call is None else call.name)

    def _refuse(self, *_: object) -> NoReturn:
        call = self._ctx.tool_call
        code = f"tool `{call.name}` of `{self._ctx.agent}`" if call is not None else f"`{self._ctx.agent}`"
        raise self.missing_await(f"{code} used")

    if not TYPE_CHECKING:
        __bool__ = __str__ = __format__ = __bytes__ = __len__ = __iter__ = __contains__ = __getitem__ = _refuse
        __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
        __int__ = __float__ = __complex__ = __index__ = __round__ = __neg__ = __abs__ = _refuse
        __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __and__ = __or__ = _refuse
        __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rand__ = __ror__ = _refuse
        # `__eq__` would remove it; event loops keep what they run in sets.
        __hash__ = object.__hash__
