"""Minimal clients for the three bindings of A2A, which expose exactly what is sent."""

import json
from collections.abc import AsyncGenerator, Callable
from typing import Any, NamedTuple, Protocol

import grpc
import grpc.aio
import httpx
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import A2A_ERROR_MAPPING, JSON_RPC_ERROR_CODE_MAP
from a2a.utils.proto_utils import validate_proto_required_fields
from google.protobuf.json_format import MessageToDict, ParseDict
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from tests.serve.a2a.sut import Endpoints

V1 = {"A2A-Version": "1.0"}
BINDINGS = ("jsonrpc", "rest", "grpc")
_SERVICE: Any = pb.DESCRIPTOR.services_by_name["A2AService"]
_REST: dict[str, tuple[str, str]] = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "ListTasks": ("GET", "/tasks"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("POST", "/tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
    "GetTaskPushNotificationConfig": ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "ListTaskPushNotificationConfigs": ("GET", "/tasks/{taskId}/pushNotificationConfigs"),
    "DeleteTaskPushNotificationConfig": ("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "GetExtendedAgentCard": ("GET", "/extendedAgentCard"),
}
_CODES = {mapping.reason: JSON_RPC_ERROR_CODE_MAP[kind] for kind, mapping in A2A_ERROR_MAPPING.items()}
_STATUSES = {mapping.reason: mapping.http_code for mapping in A2A_ERROR_MAPPING.values()}
_GRPC = {mapping.reason: mapping.grpc_status for mapping in A2A_ERROR_MAPPING.values()}


class RefusedError(Exception):
    """A refusal by the service: its reason, whose code for the binding was checked, and its message."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class BindingClient(Protocol):
    """A client for one binding."""

    async def call(self, operation: str, params: dict[str, Any], headers: dict[str, str] | None = None) -> Any:
        """Return the response as JSON."""
        ...

    def stream(self, operation: str, params: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Yield the updates as JSON."""
        ...


class JsonRpcClient:
    """A client for JSON-RPC."""

    def __init__(self, endpoints: Endpoints, http: httpx.AsyncClient) -> None:
        self._url = f"{endpoints.http}/"
        self._http = http

    async def call(self, operation: str, params: dict[str, Any], headers: dict[str, str] | None = None) -> Any:
        answer = await self._http.post(self._url, json=_call(operation, params), headers=V1 | (headers or {}))
        assert answer.headers["content-type"].startswith("application/json")  # JSONRPC-FMT-002
        return _result_in(answer.json())

    async def stream(self, operation: str, params: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        async with self._http.stream("POST", self._url, json=_call(operation, params), headers=V1) as answer:
            if not answer.headers["content-type"].startswith("text/event-stream"):
                _result_in(json.loads(await answer.aread()))
            async for body in _events(answer):
                yield _result_in(body)


class RestClient:
    """A client for HTTP+JSON."""

    def __init__(self, endpoints: Endpoints, http: httpx.AsyncClient) -> None:
        self._url = endpoints.http
        self._http = http

    def _request(self, operation: str, params: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
        method, path = _REST[operation]
        rest = {key: value for key, value in params.items() if f"{{{key}}}" not in path}
        body = {"json": rest} if method == "POST" else {"params": {key: _text(value) for key, value in rest.items()}}
        return {"method": method, "url": self._url + path.format(**params), "headers": V1 | headers, **body}

    async def call(self, operation: str, params: dict[str, Any], headers: dict[str, str] | None = None) -> Any:
        answer = await self._http.request(**self._request(operation, params, headers or {}))
        if answer.status_code >= 400:
            _refuse_rest(answer.status_code, answer)
        assert answer.headers["content-type"] == "application/a2a+json"  # HTTP_JSON-SVC-001
        return answer.json()

    async def stream(self, operation: str, params: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        async with self._http.stream(**self._request(operation, params, {})) as answer:
            if answer.status_code >= 400:
                await answer.aread()
                _refuse_rest(answer.status_code, answer)
            assert answer.headers["content-type"].startswith("text/event-stream")  # HTTP_JSON-SSE-001
            async for body in _events(answer):
                yield body


class GrpcClient:
    """A client for gRPC."""

    def __init__(self, endpoints: Endpoints, channel: grpc.aio.Channel) -> None:
        self._channel: Any = channel

    def _prepare(self, operation: str, params: dict[str, Any]) -> tuple[Any, Any]:
        method = _SERVICE.methods_by_name[operation]
        kind = getattr(pb, method.input_type.name)
        value = getattr(pb, method.output_type.name, None)
        make = self._channel.unary_stream if method.server_streaming else self._channel.unary_unary
        read: Any = bytes if value is None else value.FromString
        call = make(f"/{_SERVICE.full_name}/{operation}", kind.SerializeToString, read)
        return call, ParseDict(params, kind())

    async def call(self, operation: str, params: dict[str, Any], headers: dict[str, str] | None = None) -> Any:
        call, request = self._prepare(operation, params)
        try:
            answer = await call(request, metadata=_metadata(headers))
        except grpc.aio.AioRpcError as error:
            raise _grpc_refusal(error) from None
        return {} if isinstance(answer, bytes) else MessageToDict(answer)

    async def stream(self, operation: str, params: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        call, request = self._prepare(operation, params)
        running = call(request, metadata=_metadata(None))
        try:
            async for answer in running:
                yield MessageToDict(answer)
        except grpc.aio.AioRpcError as error:
            raise _grpc_refusal(error) from None
        finally:
            running.cancel()


class ServiceUnderTest(NamedTuple):
    """The served system under test, and a client for one binding."""

    client: BindingClient
    endpoints: Endpoints
    binding: str

    async def send(self, id: str, text: str = "hi", configuration: Any = None, **more: Any) -> dict[str, Any]:
        """Send a message with this id; return `{"task": …}` or `{"message": …}`."""
        params = {"message": message(id, text, **more)} | ({"configuration": configuration} if configuration else {})
        answer = await self.client.call("SendMessage", params)
        assert_valid(answer, pb.SendMessageResponse())
        return answer

    async def task(self, id: str, text: str = "hi", configuration: Any = None, **more: Any) -> dict[str, Any]:
        """Send a message with this id; return the task."""
        return (await self.send(id, text, configuration, **more))["task"]

    async def read_stream(
        self, operation: str = "SendStreamingMessage", *, on_update: Callable[[], object] = lambda: None, **params: Any
    ) -> list[dict[str, Any]]:
        """Return all updates of a stream. `on_update` is called as each arrives."""
        updates: list[dict[str, Any]] = []
        async for update in self.client.stream(operation, params):
            assert_valid(update, pb.StreamResponse())
            updates.append(update)
            on_update()
        return updates

    async def refused(self, operation: str, headers: dict[str, str] | None = None, **params: Any) -> str:
        """Return the reason for which a call is refused."""
        try:
            answer = await self.client.call(operation, params, headers)
        except RefusedError as refusal:
            return refusal.reason
        raise AssertionError(f"not refused: {answer}")


def message(id: str, text: str = "hi", **more: Any) -> dict[str, Any]:
    """Create a message whose id selects the agent's action."""
    return {"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}], **more}


def assert_valid(value: Any, kind: Any) -> None:
    """Assert that a value has no unknown fields and all required ones."""
    parsed = ParseDict(value, kind, ignore_unknown_fields=False)
    validate_proto_required_fields(parsed)


def _call(operation: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": "c-1", "method": operation, "params": params}


def _result_in(body: Any) -> Any:
    assert set(body) - {"result", "error"} == {"jsonrpc", "id"}  # JSONRPC-FMT-001
    assert (body["jsonrpc"], body["id"]) == ("2.0", "c-1")
    if "error" not in body:
        return body["result"]
    error = body["error"]
    assert set(error) <= {"code", "message", "data"}  # JSONRPC-ERR-001
    reason = _reason_in(error["data"])  # JSONRPC-ERR-003
    assert error["code"] == _CODES[reason]  # JSONRPC-SSE-002
    raise RefusedError(reason, error["message"])


def _refuse_rest(status: int, answer: httpx.Response) -> None:
    error = answer.json()["error"]
    assert answer.headers["content-type"].startswith("application/json")  # HTTP_JSON-ERR-001
    assert isinstance(error["message"], str)
    reason = _reason_in(error["details"])  # HTTP_JSON-ERR-002
    assert error["code"] == status == _STATUSES[reason]  # HTTP_JSON-STATUS-001
    raise RefusedError(reason, error["message"])


def _reason_in(details: Any) -> str:
    info = details[0]
    assert info["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert info["domain"] == "a2a-protocol.org"
    return info["reason"]


def _grpc_refusal(error: grpc.aio.AioRpcError) -> RefusedError:
    details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    assert isinstance(details, bytes)
    status, info = Status.FromString(details), ErrorInfo()
    assert status.details[0].Unpack(info)  # GRPC-ERR-001
    assert info.domain == "a2a-protocol.org"
    if error.code() is not grpc.StatusCode.UNAUTHENTICATED:
        assert error.code().name == _GRPC[info.reason]  # GRPC-ERR-002
    return RefusedError(info.reason, error.details() or "")


def _metadata(headers: dict[str, str] | None) -> list[tuple[str, str]]:
    return [(key.lower(), value) for key, value in (V1 | (headers or {})).items()]


async def _events(answer: httpx.Response) -> AsyncGenerator[Any]:
    async for line in answer.aiter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)
