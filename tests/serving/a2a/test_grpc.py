"""The door for gRPC: who calls is asked there as well, and what goes wrong inside stays inside."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest
from tests.serving.a2a.sut import Place, served_sut
from tests.serving.a2a.wires import GrpcWire, Line, Told, message

from baton.serving import APIKeyAuth, BasicAuth, BearerAuth
from baton.stores import MemoryStore, RunRecord


@asynccontextmanager
async def _line(**options: Any) -> AsyncGenerator[Line]:
    async with served_sut(delay=0.5, **options) as place, grpc.aio.insecure_channel(place.grpc) as channel:
        yield Line(GrpcWire(place, channel), place, "grpc")


@pytest.mark.parametrize(
    ("auth", "metadata"),
    [
        (BearerAuth({"t": "ann"}), {"Authorization": "Bearer t"}),
        (APIKeyAuth({"k": "ann"}), {"X-API-Key": "k"}),
        (BasicAuth({"ann": "p"}), {"Authorization": "Basic YW5uOnA="}),
    ],
)
async def test_callers_say_who_they_are_in_metadata_and_have_tasks_of_their_own(
    auth: Any, metadata: dict[str, str]
) -> None:
    # X7
    async with _line(auth=auth) as line:
        asked = {"message": message("tck-complete-task")}
        task = (await line.wire.call("SendMessage", asked, metadata))["task"]["id"]
        record = await line.place.app.runner._require_store("test").record(task)
        assert record is not None
        assert record.owner == "ann"
        assert await line.refused("GetTask", id=task) == "INVALID_REQUEST"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _raw(line.place, "GetTask")
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def _raw(place: Place, method: str, metadata: Any = None) -> bytes:
    async with grpc.aio.insecure_channel(place.grpc) as channel:
        plain: Any = channel
        return await plain.unary_unary(f"/lf.a2a.v1.A2AService/{method}")(b"", metadata=metadata)


async def test_a_required_extension_is_asked_for() -> None:
    # X8
    card = {"capabilities": {"streaming": True, "extensions": [{"uri": "urn:x", "required": True}]}}
    async with _line(card=card) as line:
        assert await line.refused("SendMessage", message=message("x")) == "EXTENSION_SUPPORT_REQUIRED"
        named = {"A2A-Extensions": "urn:x"}
        assert (await line.wire.call("SendMessage", {"message": message("x")}, named))["task"]


async def test_a_request_that_is_none_and_a_method_that_is_none() -> None:
    async with _line() as line:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _raw(line.place, "Dance")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _raw(line.place, "GetTask", [("a2a-version", "1.0")])
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


class _Broken(MemoryStore):
    """Cannot be asked about one run."""

    async def record(self, run_id: str) -> RunRecord | None:
        if run_id == "cursed":
            raise RuntimeError("the password is hunter2")
        return await super().record(run_id)


async def test_a_fault_of_ours_is_told_to_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with _line(store=_Broken()) as line:
        with pytest.raises(Told, match="INTERNAL_ERROR") as caught:
            await line.wire.call("GetTask", {"id": "cursed"})
        with pytest.raises(Told, match="INTERNAL_ERROR"):
            await line.streamed("SubscribeToTask", id="cursed")
    assert "hunter2" not in str(caught.value)
    assert "hunter2" in caplog.text


async def test_who_hangs_up_does_not_stop_the_task() -> None:
    # X4
    async with _line() as line, asyncio.timeout(60):
        stream = line.wire.stream("SendStreamingMessage", {"message": message("tck-delayed-complete")})
        first: dict[str, Any] = await anext(stream)
        await stream.aclose()
        again = await line.streamed("SubscribeToTask", id=first["task"]["id"])
    assert again[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
