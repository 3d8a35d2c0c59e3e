"""The `openai_app` factory. Importable without Starlette, so that a missing extra is reported by name."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from ..._checks import check_arguments, check_choice, check_positive, require_extra
from ...errors import SetupError
from ...runs import ContextFactory
from ..http.application import AppTarget, make_app, to_background_runner
from ..http.auth import AuthLike
from .chat_answers import WORDS, ChatAnswers

if TYPE_CHECKING:
    from starlette.applications import Starlette


@check_arguments
def openai_app(
    target: AppTarget | Mapping[str, AppTarget],
    /,
    *,
    auth: AuthLike | None = None,
    allow_anonymous: bool = False,
    cors_origins: Sequence[str] = (),
    max_body: int = 20 << 20,
    show_errors: bool = False,
    context_factory: ContextFactory | None = None,
    on_disconnect: Literal["cancel", "continue"] = "cancel",
    heartbeat: float = 15.0,
    thread_from: Sequence[str] = ("x-openwebui-chat-id", "metadata.thread"),
    client_history: bool = True,
    answer_in_chat: bool = False,
    answer_languages: Sequence[str] = ("en",),
    show_agents: bool = False,
) -> "Starlette":
    """Return an ASGI app that serves teams as models of OpenAI's API.

    It has Chat Completions and Responses, so that every program that can talk to OpenAI can talk to a team.

    Args:
        target: The agent, runner or background runner to serve under the name of its root agent, or several by the
            name of the model; a runner must have a store.
        auth: The accepted API keys: one, keys by principal name, a function that verifies keys, or schemes.
        allow_anonymous: Without `auth`, accept requests from other machines too.
        cors_origins: Origins whose pages may call the app.
        max_body: The largest accepted body in bytes; messages may contain images and files.
        show_errors: Show callers the message of the exception that failed a run.
        context_factory: Creates the context of a run from its record; by default the runner's own.
        on_disconnect: `"cancel"` cancels a run whose client disconnects; `"continue"` lets it run.
        heartbeat: Seconds of silence after which a stream sends a comment.
        thread_from: The places that may name the thread of a request, in order: `"user"`, `"metadata.KEY"` or a
            header. Of a thread that the store knows only the new message is read, and the active agent stays active.
            A request without one brings the whole conversation, and the root agent answers.
        client_history: Accept requests that bring messages of agents and results of tools which the store does not
            have. The models believe them; False refuses them.
        answer_in_chat: Let the next message of a thread answer the question of an agent. By default a person must
            answer it elsewhere, because users must not approve their own requests.
        answer_languages: The languages in which a message approves or rejects: de, en, es, fr, it, ja, pt or zh.
        show_agents: Name the agent that speaks in the field `baton` of messages.

    Raises:
        SetupError: Starlette is not installed, a runner has no store, or an argument is invalid.
    """
    check_choice("openai_app(on_disconnect=…)", on_disconnect, ("cancel", "continue"))
    check_positive("openai_app(heartbeat=…)", heartbeat)
    for language in answer_languages:
        check_choice("openai_app(answer_languages=…)", language, [*WORDS])
    require_extra("openai_app(…)", "serving", "starlette")
    from ..http.guard import RequestGuard
    from .endpoint import OpenAIEndpoints
    from .openai_errors import unknown_path
    from .served_model import ServedModel

    targets = target if isinstance(target, Mapping) else {"": target}
    if not targets:
        raise SetupError("openai_app({}) serves no model; give an agent, or several as {name: agent}")
    guard = RequestGuard(auth, allow_anonymous=allow_anonymous, max_body=max_body, cors_origins=cors_origins)
    models: dict[str, ServedModel] = {}
    for name, served in targets.items():
        background = to_background_runner(served, "openai_app", context_factory)
        model = ServedModel(
            background=background,
            guard=guard,
            heartbeat=heartbeat,
            show_errors=show_errors,
            cancel_on_disconnect=on_disconnect == "cancel",
            name=name or background.runner.team.root,
            # The models of one chat have threads of their own, even if they share a store.
            thread_prefix=f"{name}/" if name else "",
            client_history=client_history,
            chat_answers=ChatAnswers(answer_languages),
            answer_in_chat=answer_in_chat,
        )
        models[model.name] = model
    endpoints = OpenAIEndpoints(guard=guard, models=models, thread_from=thread_from, show_agents=show_agents)
    handlers = dict.fromkeys((404, 405), unknown_path)
    backgrounds = [model.background for model in models.values()]
    return make_app(endpoints.routes(), *backgrounds, cors_origins=cors_origins, handlers=handlers)
