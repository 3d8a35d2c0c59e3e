"""The gRPC binding, for a `grpc.aio` server of the application. Metadata take the place of HTTP headers."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from operator import methodcaller
from typing import Any, cast
from urllib.parse import unquote

from a2a.server.context import ServerCallContext
from a2a.utils.error_handlers import A2A_DOMAIN
from a2a.utils.errors import A2A_ERROR_MAPPING, InternalError
from a2a.utils.grpc_status import status_to_grpc
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.message import Message as ProtoMessage
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from starlette.requests import Request

from ..._checks import require_extra
from ..._propagation import remote_parent
from .handler import OPERATIONS, SERVICE, A2ARequestGuard, A2ARequestHandler, Operation, to_a2a_error, to_response
from .projection import Update


class GRPCBinding:
    """Passes gRPC calls to the request handler.

    Raises:
        SetupError: grpcio is not installed.
    """

    def __init__(self, handler: A2ARequestHandler, guard: A2ARequestGuard) -> None:
        require_extra("A2A over gRPC", "", "grpc", packages="a2a-sdk[grpc]")
        import grpc

        self._grpc: Any = grpc
        self._handler = handler
        self._guard = guard

    def add_to(self, server: Any) -> None:
        """Add the A2A service to a server."""
        handlers = {name: self._method_handler(operation) for name, operation in OPERATIONS.items()}
        server.add_generic_rpc_handlers((self._grpc.method_handlers_generic_handler(SERVICE.full_name, handlers),))

    def _method_handler(self, operation: Operation) -> Any:
        kind = "stream" if operation.is_stream else "unary"
        make = getattr(self._grpc, f"unary_{kind}_rpc_method_handler")
        behavior: Any = (self._streaming if operation.is_stream else self._unary)(operation.handler)
        return make(behavior, operation.params.FromString, methodcaller("SerializeToString"))

    def _unary(self, name: str) -> Any:
        async def handle(params: ProtoMessage, call: Any) -> ProtoMessage:
            async with self._admitted(call) as context:
                return to_response(params, await getattr(self._handler, name)(params, context))

        return handle

    def _streaming(self, name: str) -> Any:
        async def stream(params: ProtoMessage, call: Any) -> AsyncGenerator[ProtoMessage]:
            async with self._admitted(call) as context:
                updates = cast("AsyncGenerator[Update]", getattr(self._handler, name)(params, context))
                async with aclosing(updates):
                    async for update in updates:
                        yield to_stream_response(update)

        return stream

    @asynccontextmanager
    async def _admitted(self, call: Any) -> AsyncGenerator[ServerCallContext]:
        """Yield the context of a call that passes the checks; abort the call if the block fails."""
        request = _to_request(call)
        try:
            with remote_parent(request.headers):
                yield await self._guard.admit_current(request)
        except Exception as error:
            await self._abort(call, error)
            raise

    async def _abort(self, call: Any, error: Exception) -> None:
        codes = self._grpc.StatusCode
        reported = to_a2a_error(error)
        mapping = A2A_ERROR_MAPPING.get(type(reported.error), A2A_ERROR_MAPPING[InternalError])
        by_status = {401: codes.UNAUTHENTICATED, 403: codes.PERMISSION_DENIED}
        code = by_status.get(reported.status or 0, codes[mapping.grpc_status])
        status = Status(code=code.value[0], message=reported.error.message)
        status.details.add().Pack(ErrorInfo(reason=mapping.reason, domain=A2A_DOMAIN))
        encoded: Any = status_to_grpc(status)
        await call.abort(encoded.code, encoded.details, encoded.trailing_metadata)


def _to_request(call: Any) -> Any:
    """Return a call as an HTTP request, for the checks that all bindings share."""
    metadata = call.invocation_metadata() or ()
    # Browsers cannot send gRPC, so there is no Host header to check against DNS rebinding.
    headers = [(b"host", b"localhost")]
    headers += [(key.lower().encode(), value.encode()) for key, value in metadata if isinstance(value, str)]
    host, _, port = unquote(call.peer()).partition(":")[2].rpartition(":")
    client = (host.strip("[]"), int(port)) if port.isdigit() else None
    scope = {"type": "http", "method": "POST", "scheme": "http", "path": "/", "query_string": b""}
    return Request({**scope, "headers": headers, "client": client, "server": None})
