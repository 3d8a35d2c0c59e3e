"""The door for gRPC: the same operations as a service of protocol buffers, on a server that you start.

What headers are to the other doors, metadata are here: who calls, which version, which extensions.
"""

import logging
from collections.abc import AsyncGenerator
from typing import Any, NoReturn, cast
from urllib.parse import unquote

from a2a.server.context import ServerCallContext
from a2a.types import a2a_pb2 as pb
from a2a.utils.error_handlers import A2A_DOMAIN
from a2a.utils.errors import A2A_ERROR_MAPPING, A2AError, InternalError
from a2a.utils.grpc_status import status_to_grpc
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.message import Message as ProtoMessage
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from ...errors import SetupError
from .handler import METHODS, A2ARequestGuard, A2ARequestHandler, RequestRefusedError, as_response
from .projection import Update

_logger = logging.getLogger("baton.a2a")
_SERVICE = pb.DESCRIPTOR.services_by_name["A2AService"]


class GRPCBinding:
    """Reads calls, has the desk answer them, and writes what it says."""

    def __init__(self, desk: A2ARequestHandler, entrance: A2ARequestGuard) -> None:
        try:
            import grpc
        except ImportError:
            raise SetupError("A2A over gRPC needs grpcio: pip install 'a2a-sdk[grpc]'") from None
        self._grpc: Any = grpc
        self._desk = desk
        self._entrance = entrance

    def add_to(self, server: Any) -> None:
        """Have a server of `grpc.aio` answer the operations of A2A."""
        handlers = {method.name: self._handler(method) for method in _SERVICE.methods if method.name in METHODS}
        made = self._grpc.method_handlers_generic_handler(_SERVICE.full_name, handlers)
        server.add_generic_rpc_handlers((made,))

    def _handler(self, method: Any) -> Any:
        kind, name = METHODS[method.name]
        make = self._grpc.unary_unary_rpc_method_handler
        work: Any = self._answering(name)
        if method.server_streaming:
            make = self._grpc.unary_stream_rpc_method_handler
            work = self._streaming(name)
        return make(work, request_deserializer=kind.FromString, response_serializer=_bytes_of)

    def _answering(self, name: str) -> Any:
        async def answer(wanted: ProtoMessage, call: Any) -> ProtoMessage:
            try:
                context = await self._admitted(call)
                return as_response(wanted, await getattr(self._desk, name)(wanted, context))
            except Exception as error:
                await self._refuse(call, error)
                raise

        return answer

    def _streaming(self, name: str) -> Any:
        async def stream(wanted: ProtoMessage, call: Any) -> AsyncGenerator[ProtoMessage]:
            try:
                context = await self._admitted(call)
                updates = cast("AsyncGenerator[Update]", getattr(self._desk, name)(wanted, context))
                try:
                    async for update in updates:
                        yield to_stream_response(update)
                finally:
                    await updates.aclose()
            except Exception as error:
                await self._refuse(call, error)
                raise

        return stream

    async def _admitted(self, call: Any) -> ServerCallContext:
        request = _as_request(call)
        context = await self._entrance.admitted(request)
        self._entrance.check_version(request, context)
        return context

    async def _refuse(self, call: Any, error: Exception) -> NoReturn:
        """End a call with an error, as this transport tells it."""
        codes = self._grpc.StatusCode
        told = error.error if isinstance(error, RequestRefusedError) else error
        if not isinstance(told, A2AError):
            # A fault of ours: the caller learns that there is one, the log which.
            _logger.error("a gRPC call could not be answered", exc_info=error)
            told = InternalError()
        mapping = A2A_ERROR_MAPPING.get(type(told), A2A_ERROR_MAPPING[InternalError])
        is_unknown = isinstance(error, RequestRefusedError) and error.status == 401
        code = codes.UNAUTHENTICATED if is_unknown else codes[mapping.grpc_status]
        status = Status(code=code.value[0], message=told.message)
        status.details.add().Pack(ErrorInfo(reason=mapping.reason, domain=A2A_DOMAIN))
        written: Any = status_to_grpc(status)
        await call.abort(written.code, written.details, written.trailing_metadata)
        raise error


def _as_request(call: Any) -> Any:
    """A call as the request that the entrance reads: its metadata are the headers."""
    from starlette.requests import Request

    given = call.invocation_metadata() or ()
    headers = [(key.lower().encode(), value.encode()) for key, value in given if isinstance(value, str)]
    host, _, port = unquote(call.peer()).partition(":")[2].rpartition(":")
    client = (host.strip("[]"), int(port)) if port.isdigit() else None
    about = {"type": "http", "method": "POST", "scheme": "http", "path": "/", "query_string": b""}
    return Request({**about, "headers": headers, "client": client, "server": None})


def _bytes_of(message: ProtoMessage) -> bytes:
    return message.SerializeToString()
