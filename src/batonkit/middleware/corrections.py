"""Middleware that checks a response and asks the model again: `ValidateOutput`, `RequireAnnouncedHandoff`."""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias, cast

from msgspec.structs import replace

from .._checks import check_arguments, check_callback
from .._wording import show
from ..agents.agent_context import AgentContext
from ..agents.middleware import Middleware, NextModelCall
from ..context import RunContext
from ..context.run_context import needs_await
from ..errors import OutputError, SetupError
from ..messages import AssistantMessage, UserMessage, answer_of, text_of
from ..models import ModelRequest, ModelResponse

Verdict: TypeAlias = str | bool | None
OutputCheck: TypeAlias = Callable[[RunContext[Any], Any], Verdict | Awaitable[Verdict]]
"""A check `(ctx, output)` that returns None or True for a good answer, and a complaint otherwise."""


def _with_complaint(request: ModelRequest, response: ModelResponse, complaint: str) -> ModelRequest:
    """Return a request that ends with the rejected response and the complaint."""
    rejected = cast("AssistantMessage", response.message)
    return replace(request, messages=[*request.messages, rejected, UserMessage(complaint)])


def _has_calls(response: ModelResponse) -> bool:
    return response.message is None or bool(response.message.tool_calls)


class ValidateOutput(Middleware[Any]):
    """Checks answers with a function, and asks the model again with its complaint.

    Responses that call tools are not checked. The rejected answers are not recorded and no other agent reads them. An
    answer that does not fit the agent's `output_type` is left to the correction that `Agent` makes itself.

    Args:
        function: A function `(ctx, output)`, sync or async. It returns None or True for a good answer, a text that
            says what is wrong, or False. With an `output_type` it is given the parsed output, otherwise the text.
        times: The number of times that the model is asked again.
        holds_deltas: Whether subscribers see an answer only after it was accepted. If not, a rejected answer is
            followed by `ResponseRestarted`.

    Raises:
        SetupError: The function does not take `(ctx, output)`, or `times` is negative.
    """

    @check_arguments
    def __init__(self, function: OutputCheck, times: int = 2, *, holds_deltas: bool = False) -> None:
        check_callback("ValidateOutput(function=…)", function, "ctx", "output")
        if times < 0:
            raise SetupError(f"ValidateOutput(times={times}): give 0 or more")
        self._function = function
        self._times = times
        self.holds_deltas = holds_deltas

    async def model_call(self, ctx: RunContext[Any], request: ModelRequest, next: NextModelCall) -> ModelResponse:
        """Call the model until the function accepts its answer.

        Raises:
            OutputError: The last answer was rejected, too.
        """
        asked = request
        attempt = 0
        while True:
            response = await next(asked)
            complaint = None if _has_calls(response) else await self._check(ctx, response)
            if complaint is None:
                return response
            if attempt == self._times:
                raise OutputError(ctx.agent, "an answer that its check accepts", complaint)
            attempt += 1
            asked = _with_complaint(asked, response, f"This answer was rejected: {complaint}\nAnswer again.")

    async def _check(self, ctx: RunContext[Any], response: ModelResponse) -> str | None:
        output: Any = answer_of(cast("AssistantMessage", response.message).content)
        agent_ctx: AgentContext[Any] = cast("AgentContext[Any]", ctx._caller)
        compiled = agent_ctx._options.compiled_agents.get(ctx.agent)
        if compiled is not None and compiled.agent._output_parser is not None:
            try:
                output = compiled.agent._output_parser.parse(output)
            except ValueError:
                return None
        verdict: Any = self._function(ctx, output)
        if needs_await(verdict):
            verdict = await verdict
        if verdict is None or verdict is True:
            return None
        if verdict is False:
            return "it does not pass a check."
        if isinstance(verdict, str) and verdict:
            return verdict
        raise SetupError(f"the function of ValidateOutput returned {show(verdict)}; return None, True or a complaint")


_ANNOUNCING = (
    r"transfer|hand(?:ing)?\b.{0,20}\b(?:over|off)|connect|pass(?:ing)?\b.{0,20}\b(?:to|on)|forward|redirect"
    r"|rout(?:e|ing)|escalat|put(?:ting)?\b.{0,20}\bthrough|refer|switch|bring(?:ing)? in|loop(?:ing)? in"
    r"|转接|移交|转给|转到"
)
_NOT_ANNOUNCING = re.compile(
    r"\b(?:not|cannot|never|unable|if|unless|would you|do you|could|already|has been|was)\b|n't\b|[?？]\s*$|不|没",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_\-\s]+")


class RequireAnnouncedHandoff(Middleware[Any]):
    """Asks the model once more if it announces a transfer without calling the tool for it.

    A sentence counts as an announcement if it has a word such as "transfer", "connect you" or "hand you over" and the
    name of an agent whose handoff the model was offered, and is neither a question nor negated or conditional. Names
    are compared without case; "Billing" and "billing agent" both mean `BillingAgent`.

    The comparison is a heuristic. It finds too much where an agent has the name of an ordinary thing ("I connected the
    printer to the network" with an agent `Network`), and misses announcements without a name ("a colleague will take
    over"). A false alarm costs one more model call: the second response is used whatever it says.

    Args:
        phrases: Regular expressions for the words of an announcement, instead of the built-in English and Chinese ones.
        holds_deltas: Whether subscribers see a response only after it was checked.

    Raises:
        SetupError: A phrase is not a regular expression.
    """

    @check_arguments
    def __init__(self, *, phrases: Sequence[str] | None = None, holds_deltas: bool = False) -> None:
        if isinstance(phrases, str):
            raise SetupError(f"RequireAnnouncedHandoff(phrases={phrases!r}): give a list of regular expressions")
        try:
            self._phrases = re.compile("|".join(f"(?:{phrase})" for phrase in phrases or [_ANNOUNCING]), re.IGNORECASE)
        except re.error as error:
            raise SetupError(f"RequireAnnouncedHandoff: {phrases} are not regular expressions: {error}") from None
        self.holds_deltas = holds_deltas

    async def model_call(self, ctx: RunContext[Any], request: ModelRequest, next: NextModelCall) -> ModelResponse:
        """Call the model, and once more if it only announced a transfer."""
        response = await next(request)
        if _has_calls(response):
            return response
        text = text_of(cast("AssistantMessage", response.message).content)
        announced = self._find_announced(text, _offered_handoffs(ctx, request))
        if announced is None:
            return response
        target, tool = announced
        complaint = (
            f"You announced a transfer to {target}, but did not call `{tool}`, so nothing was transferred. "
            f"Call `{tool}` now. If you did not mean to transfer, answer again without announcing a transfer."
        )
        return await next(_with_complaint(request, response, complaint))

    def _find_announced(self, text: str, offered: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
        """Return the agent and the tool of the first announced transfer."""
        names = [(target, tool, _name_pattern(target)) for target, tool in offered]
        for sentence in _SENTENCE.findall(text) if names else ():
            if not self._phrases.search(sentence) or _NOT_ANNOUNCING.search(sentence):
                continue
            for target, tool, pattern in names:
                if pattern.search(sentence):
                    return target, tool
        return None


def _offered_handoffs(ctx: RunContext[Any], request: ModelRequest) -> list[tuple[str, str]]:
    """Return the targets of the handoffs in a request, and the tool for each."""
    offered = {spec.name for spec in request.tools}
    agent_ctx: AgentContext[Any] = cast("AgentContext[Any]", ctx._caller)
    return [(route.target, route.tool) for route in agent_ctx._routes.offered() if route.tool in offered]


def _name_pattern(name: str) -> re.Pattern[str]:
    """Match a name with its words together or apart, and without a final "agent"."""
    words = [re.escape(word) for word in _CAMEL.split(name) if word]
    if len(words) > 1 and words[-1].lower() == "agent":
        words.pop()
    # Chinese has no spaces between words.
    start, end = ("", "") if not name.isascii() else (r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])")
    return re.compile(start + r"[\s_-]*".join(words) + end, re.IGNORECASE)
