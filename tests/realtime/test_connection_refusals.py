"""Commands that the provider refuses are sent again, and no tool runs again."""

from tests.realtime.backends import Backend, ScriptedBackend, WebSocketBackend
from tests.realtime.recorder import make_runner, record_session
from tests.servers.realtime import RefuseCommand

from batonkit import tool
from batonkit.errors import ModelRequestError
from batonkit.log import AgentResponded
from batonkit.realtime import RealtimeAgent, SessionErrorReported
from batonkit.realtime.protocol import AddItem, ConfigureSession, CreateResponse
from batonkit.testing import call


async def test_a_refused_item_is_sent_again_without_running_the_tool_again(backend: Backend) -> None:
    calls = 0

    @tool
    async def pay() -> str:
        """Pay."""
        nonlocal calls
        calls += 1
        if isinstance(backend, WebSocketBackend):
            backend.server.plan(RefuseCommand("conversation.item.create"))
        else:
            assert isinstance(backend, ScriptedBackend)
            backend.model.refuse(AddItem, code="server_error", message="try again")
        return "paid"

    model = await backend.start([call("pay"), "One moment.", "It is paid."])
    async with record_session(make_runner(RealtimeAgent("Desk", tools=[pay]), model).connect()) as recorder:
        await recorder.session.send_text("Pay!")
        await recorder.wait_for(AgentResponded, 2)
        await recorder.session.wait_until_idle()
    assert calls == 1
    assert [role for role, _ in backend.items()].count("result") == 1
    assert backend.commands().count("result") == 2
    # The first response was requested before the provider had the result, so another one is requested.
    assert recorder.response_texts[-1] == "It is paid."
    assert recorder.of_type(SessionErrorReported) == []


async def test_refused_settings_are_sent_again(backend: Backend) -> None:
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[_billing()])
    model = await backend.start({"Desk": [call("transfer_to_billing")], "Billing": ["Billing here.", "Billing here."]})
    async with record_session(make_runner(desk, model).connect()) as recorder:
        _refuse_settings(backend, 1)
        await recorder.session.send_text("Hi")
        await recorder.wait_for(AgentResponded, where=lambda response: response.agent == "Billing")
        await recorder.session.wait_until_idle()
    assert backend.settings()[0] == "Billing: be kind."
    assert backend.commands().count("configure") == 2
    assert recorder.failure is None


async def test_settings_that_are_refused_repeatedly_fail_the_session(backend: Backend) -> None:
    # An agent never responds with the tools of another one.
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[_billing()])
    model = await backend.start({"Desk": [call("transfer_to_billing"), *["Desk here."] * 9], "Billing": []})
    async with record_session(make_runner(desk, model).connect()) as recorder:
        _refuse_settings(backend, 3)
        await recorder.session.send_text("Hi")
        await recorder.wait_until_ended()
    assert isinstance(recorder.failure, ModelRequestError)
    assert "rejected the settings of `Billing`" in str(recorder.failure)
    assert "Desk here." not in recorder.response_texts


def _billing() -> RealtimeAgent:
    return RealtimeAgent("Billing", description="Settles invoices.", instructions="Billing: be kind.")


def _refuse_settings(backend: Backend, times: int) -> None:
    for number in range(1, times + 1):
        if isinstance(backend, WebSocketBackend):
            backend.server.plan(RefuseCommand("session.update", nth=number))
        else:
            assert isinstance(backend, ScriptedBackend)
            backend.model.refuse(ConfigureSession, code="server_error", message="try again")


async def test_a_refused_request_for_a_response_is_sent_again(backend: Backend) -> None:
    model = await backend.start(["Hello."])
    async with record_session(make_runner(RealtimeAgent("Desk"), model).connect()) as recorder:
        if isinstance(backend, WebSocketBackend):
            backend.server.plan(RefuseCommand("response.create"))
        else:
            assert isinstance(backend, ScriptedBackend)
            backend.model.refuse(CreateResponse, code="server_error", message="try again")
        await recorder.session.send_text("Hi")
        await recorder.wait_for_response()
    assert backend.commands() == ["user", "respond", "respond"]
    assert recorder.response_texts == ["Hello."]
