"""The endpoints of the OpenAI-compatible server: models, chat completions and responses."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from time import time
from typing import TypeAlias
from uuid import uuid4

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from ...errors import quote_names
from ...log import Event, RunStarted
from ...messages import Message
from ...runs.opening import run_started_event
from ...stores import RunRecord
from ..http.auth import Principal
from ..http.guard import RequestGuard
from ..http.http_errors import ServingError, report_error
from .completions import CompletionWriter
from .openai_errors import error_response
from .openai_requests import (
    InvalidRequestError,
    ResponsesBody,
    check_thread,
    find_thread,
    parse_chat,
    parse_responses,
    read_messages,
)
from .responses import PREFIX, ResponseWriter, response_head
from .served_model import ServedModel
from .turns import Turn, split_response_id

_RESPONSE_ID = re.compile(rf"{PREFIX}[0-9a-f]{{32}}(\.\d{{1,9}})?")
_Endpoint: TypeAlias = Callable[[Principal, Request], Awaitable[Response]]


class _StoredResponse(Struct, frozen=True):
    """A response that a client may see, with the log of its run."""

    model: ServedModel
    turn: Turn
    record: RunRecord
    started: RunStarted
    log: Sequence[Event]


@dataclass(eq=False, kw_only=True)
class OpenAIEndpoints:
    """The endpoints of one app."""

    guard: RequestGuard
    models: Mapping[str, ServedModel]
    thread_from: Sequence[str]
    show_agents: bool

    def routes(self) -> list[BaseRoute]:
        """Return the routes, with and without `/v1`."""
        table: list[tuple[str, str, _Endpoint]] = [
            ("GET", "/models", self._list_models),
            ("GET", "/models/{id:path}", self._get_model),
            ("POST", "/chat/completions", self._complete_chat),
            ("POST", "/responses", self._create_response),
            ("GET", "/responses/{id}", self._get_response),
            ("DELETE", "/responses/{id}", self._delete_response),
            ("POST", "/responses/{id}/cancel", self._cancel_response),
        ]
        routes = [Route(path, self._handler(endpoint), methods=[method]) for method, path, endpoint in table]
        return [Mount("/v1", routes=routes), *routes]

    def _handler(self, endpoint: _Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            try:
                return await endpoint(await self.guard.admit(request), request)
            except Exception as error:  # noqa: BLE001 - every failure becomes a response
                return error_response(report_error(request, error))

        return handle

    async def _list_models(self, principal: Principal, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [model.describe() for model in self.models.values()]})

    async def _get_model(self, principal: Principal, request: Request) -> Response:
        return JSONResponse(self._model(request.path_params["id"]).describe())

    async def _complete_chat(self, principal: Principal, request: Request) -> Response:
        body = await self.guard.parse_body(request, parse_chat)
        model = self._model(body.model)
        messages = read_messages(body.messages, "messages")
        name = find_thread(body, request.headers, self.thread_from, messages)
        thread = model.to_thread(principal, name) if name else ""
        run_id = f"chatcmpl-{uuid4().hex}"
        turn = await model.start(principal, body, messages, thread=thread, run_id=run_id, only_last=True)
        usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        writer = CompletionWriter(turn, model.name, int(time()), show_agents=self.show_agents, include_usage=usage)
        return await model.respond(request, turn, writer, stream=bool(body.stream))

    async def _create_response(self, principal: Principal, request: Request) -> Response:
        body = await self.guard.parse_body(request, parse_responses)
        model = self._model(body.model)
        messages = read_messages(body.input, "input")
        run_id = f"{PREFIX}{uuid4().hex}"
        # A response can be continued, so it always has a thread.
        thread = await self._thread(principal, request, body, messages) or model.to_thread(principal, run_id)
        turn = await model.start(principal, body, messages, thread=thread, run_id=run_id)
        log = await model.events(turn)
        writer = self._writer(principal, model, turn, run_started_event(log))
        if body.background and not body.stream:
            return JSONResponse(model.collect(turn, writer, log).body)
        return await model.respond(request, turn, writer, stream=bool(body.stream))

    async def _get_response(self, principal: Principal, request: Request) -> Response:
        stored = await self._find_response(principal, request.path_params["id"])
        writer = self._writer(principal, stored.model, stored.turn, stored.started)
        return JSONResponse(stored.model.collect(stored.turn, writer, stored.log).body)

    async def _cancel_response(self, principal: Principal, request: Request) -> Response:
        stored = await self._find_response(principal, request.path_params["id"])
        await stored.model.background.cancel(stored.record.run_id)
        return await self._get_response(principal, request)

    async def _delete_response(self, principal: Principal, request: Request) -> Response:
        stored = await self._find_response(principal, request.path_params["id"])
        if stored.record.status == "running":
            raise ServingError(409, "run_busy", "the response is in progress; cancel it first")
        await stored.model.store.delete(stored.record.run_id)
        return JSONResponse({"id": stored.turn.response_id, "object": "response", "deleted": True})

    def _model(self, name: str) -> ServedModel:
        if name not in self.models:
            problem = f"the model `{name}` does not exist; the models are: {quote_names([*self.models])}"
            raise InvalidRequestError("model", problem, status=404, code="model_not_found")
        return self.models[name]

    async def _thread(
        self, principal: Principal, request: Request, body: ResponsesBody, messages: Sequence[Message]
    ) -> str:
        """Return the thread in the store that a request of Responses continues; "" for a new one."""
        model = self._model(body.model)
        if body.previous_response_id is not None:
            previous = await self._find_response(principal, body.previous_response_id)
            thread = previous.record.thread
            page = await previous.model.store.list(thread=thread, limit=1)
            if previous.model is not model or page.records[0].run_id != previous.record.run_id:
                problem = "`previous_response_id` must be the last response of a conversation with this model"
                raise InvalidRequestError("previous_response_id", problem)
            return thread
        if body.conversation is not None:
            id = body.conversation if isinstance(body.conversation, str) else body.conversation.id
            return model.to_thread(principal, check_thread(id, "conversation"))
        name = find_thread(body, request.headers, self.thread_from, messages)
        return model.to_thread(principal, name) if name else ""

    async def _find_response(self, principal: Principal, id: str) -> _StoredResponse:
        run_id, seen = split_response_id(id)
        store_id = principal.to_store_id(run_id)
        for model in self.models.values() if _RESPONSE_ID.fullmatch(id) else ():
            record = await model.store.record(store_id)
            if record is None or not principal.sees(record.owner):
                continue
            turn = model.turn(principal, store_id, seen, has_thread=True)
            log = await model.events(turn)
            started = run_started_event(log)
            # Several models may share a store.
            if started.root_agent in model.background.runner.team.members:
                return _StoredResponse(model, turn, record, started, log)
        raise ServingError(404, "not_found", f"there is no response `{id}`")

    def _writer(self, principal: Principal, model: ServedModel, turn: Turn, started: RunStarted) -> ResponseWriter:
        return ResponseWriter(response_head(turn, model.name, started, principal), show_agents=self.show_agents)
