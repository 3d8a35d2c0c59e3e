"""R8: what a provider does not take is sent again, and nothing is done again for that."""

from tests.realtime.backends import Backend, InMemory, OverTheWire
from tests.realtime.listener import listening_to, make_runner
from tests.servers.realtime import RefuseCommand

from baton import tool
from baton.errors import ModelRequestError
from baton.events import AgentResponded
from baton.realtime import RealtimeAgent, SessionErrorReported
from baton.realtime.protocol import AddItem, ConfigureSession, CreateResponse
from baton.testing import call


async def test_an_item_that_was_refused_is_sent_again_without_running_the_tool_again(backend: Backend) -> None:
    """R8."""
    calls = 0

    @tool
    async def pay() -> str:
        """Pay."""
        nonlocal calls
        calls += 1
        if isinstance(backend, OverTheWire):
            backend.server.plan(RefuseCommand("conversation.item.create"))
        else:
            assert isinstance(backend, InMemory)
            backend.model.refuse(AddItem, code="server_error", message="try again")
        return "paid"

    model = await backend.plays([call("pay"), "One moment.", "It is paid."])
    async with listening_to(make_runner(RealtimeAgent("Desk", tools=[pay]), model).connect()) as heard:
        await heard.session.send_text("Pay!")
        await heard.until(AgentResponded, 2)
        await heard.session.wait_until_idle()
    assert calls == 1
    assert [role for role, _ in backend.told()].count("result") == 1
    assert backend.commands().count("result") == 2
    # The model was asked before it knew the result, so it is asked again when it does.
    assert heard.words[-1] == "It is paid."
    assert heard.all(SessionErrorReported) == []


async def test_settings_that_were_refused_are_sent_again(backend: Backend) -> None:
    """R4, R8."""
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[_billing()])
    model = await backend.plays({"Desk": [call("transfer_to_billing")], "Billing": ["Billing here.", "Billing here."]})
    async with listening_to(make_runner(desk, model).connect()) as heard:
        _refuse_settings(backend, 1)
        await heard.session.send_text("Hi")
        await heard.until(AgentResponded, where=lambda said: said.agent == "Billing")
        await heard.session.wait_until_idle()
    assert backend.settings()[0] == "Billing: be kind."
    assert backend.commands().count("configure") == 2
    assert heard.failure is None


async def test_settings_that_are_never_taken_end_the_conversation(backend: Backend) -> None:
    """R4: nobody speaks with the tools of another."""
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[_billing()])
    model = await backend.plays({"Desk": [call("transfer_to_billing"), *["Desk here."] * 9], "Billing": []})
    async with listening_to(make_runner(desk, model).connect()) as heard:
        _refuse_settings(backend, 3)
        await heard.session.send_text("Hi")
        await heard.until_over()
    assert isinstance(heard.failure, ModelRequestError)
    assert "rejected the settings of `Billing`" in str(heard.failure)
    assert "Desk here." not in heard.words


def _billing() -> RealtimeAgent:
    return RealtimeAgent("Billing", description="Settles invoices.", instructions="Billing: be kind.")


def _refuse_settings(backend: Backend, times: int) -> None:
    for number in range(1, times + 1):
        if isinstance(backend, OverTheWire):
            backend.server.plan(RefuseCommand("session.update", nth=number))
        else:
            assert isinstance(backend, InMemory)
            backend.model.refuse(ConfigureSession, code="server_error", message="try again")


async def test_a_request_for_a_response_that_was_refused_is_made_again(backend: Backend) -> None:
    """R8."""
    model = await backend.plays(["Hello."])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model).connect()) as heard:
        if isinstance(backend, OverTheWire):
            backend.server.plan(RefuseCommand("response.create"))
        else:
            assert isinstance(backend, InMemory)
            backend.model.refuse(CreateResponse, code="server_error", message="try again")
        await heard.session.send_text("Hi")
        await heard.said()
    assert backend.commands() == ["user", "respond", "respond"]
    assert heard.words == ["Hello."]
