"""gRPC: authentication is enforced, and internal errors are not exposed."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest
from tests.serve.a2a.bindings import GrpcClient, RefusedError, ServiceUnderTest, message
from tests.serve.a2a.sut import Endpoints, serve_sut

from batonkit.errors import StoreError
from batonkit.serve import APIKeyAuth, BasicAuth, BearerAuth
from batonkit.stores import Lease, MemoryStore, RunRecord


@asynccontextmanager
async def _serve(**options: Any) -> AsyncGenerator[ServiceUnderTest]:
    async with serve_sut(**options) as endpoints, grpc.aio.insecure_channel(endpoints.grpc) as channel:
        yield ServiceUnderTest(GrpcClient(endpoints, channel), endpoints, "grpc")


@pytest.mark.parametrize(
    ("auth", "metadata"),
    [
        (BearerAuth({"t": "ann"}), {"Authorization": "Bearer t"}),
        (APIKeyAuth({"k": "ann"}), {"X-API-Key": "k"}),
        (BasicAuth({"ann": "p"}), {"Authorization": "Basic YW5uOnA="}),
    ],
)
async def test_callers_authenticate_with_metadata_and_own_their_tasks(auth: Any, metadata: dict[str, str]) -> None:
    async with _serve(auth=auth) as service:
        params = {"message": message("tck-complete-task")}
        task = (await service.client.call("SendMessage", params, metadata))["task"]["id"]
        record = await service.endpoints.app.runner._require_store("test").record(task)
        assert record is not None
        assert record.owner == "ann"
        assert await service.refused("GetTask", id=task) == "INVALID_REQUEST"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _raw_call(service.endpoints, "GetTask")
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def _raw_call(endpoints: Endpoints, method: str, metadata: Any = None) -> bytes:
    async with grpc.aio.insecure_channel(endpoints.grpc) as channel:
        untyped_channel: Any = channel
        return await untyped_channel.unary_unary(f"/lf.a2a.v1.A2AService/{method}")(b"", metadata=metadata)


async def test_a_required_extension_must_be_named() -> None:
    card = {"capabilities": {"streaming": True, "extensions": [{"uri": "urn:x", "required": True}]}}
    async with _serve(card=card) as service:
        assert await service.refused("SendMessage", message=message("x")) == "EXTENSION_SUPPORT_REQUIRED"
        headers = {"A2A-Extensions": "urn:x"}
        assert (await service.client.call("SendMessage", {"message": message("x")}, headers))["task"]


async def test_invalid_requests_and_unknown_methods_are_refused() -> None:
    async with _serve() as service:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _raw_call(service.endpoints, "Dance")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _raw_call(service.endpoints, "GetTask", [("a2a-version", "1.0")])
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


class _FailingStore(MemoryStore):
    """A store that fails for one run."""

    async def record(self, run_id: str) -> RunRecord | None:
        if run_id == "failing":
            raise RuntimeError("the password is hunter2")
        return await super().record(run_id)


async def test_an_internal_error_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with _serve(store=_FailingStore()) as service:
        with pytest.raises(RefusedError, match="INTERNAL_ERROR") as caught:
            await service.client.call("GetTask", {"id": "failing"})
        with pytest.raises(RefusedError, match="INTERNAL_ERROR"):
            await service.read_stream("SubscribeToTask", id="failing")
    assert "hunter2" not in str(caught.value)
    assert "hunter2" in caplog.text


class _UnreachableStore(MemoryStore):
    """A store that fails once a run is to be resumed."""

    is_reachable = True

    async def acquire(self, run_id: str, worker: str, *, ttl: float) -> Lease:
        if not self.is_reachable:
            raise StoreError("connection refused", store="postgres://db")
        return await super().acquire(run_id, worker, ttl=ttl)


async def test_a_store_that_fails_during_an_answer_is_an_error_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    store = _UnreachableStore()
    async with _serve(store=store) as service:
        task = await service.task("tck-input-required")
        store.is_reachable = False
        answer = message("tck-complete-task", taskId=task["id"])
        assert await service.refused("SendMessage", message=answer) == "INTERNAL_ERROR"
        store.is_reachable = True
        assert (await service.task("tck-complete-task", taskId=task["id"]))["id"] == task["id"]
    assert "connection refused" in caplog.text


async def test_a_client_that_disconnects_does_not_stop_the_task() -> None:
    async with _serve() as service:
        stream = service.client.stream("SendStreamingMessage", {"message": message("tck-delayed-complete")})
        first: dict[str, Any] = await anext(stream)
        await stream.aclose()
        complete = service.endpoints.sut.may_complete.set
        again = await service.read_stream("SubscribeToTask", id=first["task"]["id"], on_update=complete)
    assert again[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
