"""`ScriptedConnection`: violations of the protocol, planned faults, and waiting for commands and signals."""

import asyncio

import pytest

from batonkit.errors import ModelConnectionError, OverloadedError
from batonkit.messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage, UserMessage
from batonkit.realtime.protocol import (
    AddItem,
    AppendAudio,
    AudioChunk,
    CancelResponse,
    ClearAudio,
    CommitAudio,
    ConfigureSession,
    CreateResponse,
    ItemAdded,
    ProviderErrorReceived,
    ResponseEnded,
    ResponseStarted,
    SessionConfigured,
    Signal,
    TranscriptChunk,
    TruncateItem,
)
from batonkit.realtime.voice_settings import RealtimeSettings, SessionConfig
from batonkit.testing import ScriptedConnection, ScriptedRealtimeModel, ScriptedStream, call, speech

TEXT = SessionConfig("Desk", settings=RealtimeSettings(modality="text"))


async def read_until(connection: ScriptedConnection, until: type[Signal] = ResponseEnded) -> Signal:
    async with asyncio.timeout(60):
        async for signal in connection:
            if isinstance(signal, until):
                return signal
    raise AssertionError(f"the connection ended before {until.__name__}")


def errors_of(connection: ScriptedConnection) -> list[tuple[str, str]]:
    return [(error.command_id, error.code) for error in connection.told(ProviderErrorReceived)]


async def test_a_second_response_at_the_same_time_is_refused() -> None:
    # Never while a response is running.
    model = ScriptedRealtimeModel([ScriptedStream("one", asyncio.Event())])
    connection = await model.connect(TEXT)
    await connection.send(CreateResponse())
    await read_until(connection, ResponseStarted)
    await connection.send(CreateResponse("again"))
    assert model.complaints == ["CreateResponse: `response_1` is in progress"]
    assert errors_of(connection) == [("again", "conversation_already_has_active_response")]
    await connection.close()


async def test_unavoidable_mistakes_are_errors_but_not_complaints() -> None:
    model = ScriptedRealtimeModel(["one"])
    connection = await model.connect(TEXT)
    connection.user_speaks("Hello")
    await connection.send(CreateResponse("crossed"))
    await read_until(connection, TranscriptChunk)
    await connection.send(CancelResponse(id="late"))
    assert errors_of(connection) == [
        ("crossed", "conversation_already_has_active_response"),
        ("late", "response_cancel_not_active"),
    ]
    assert model.complaints == []
    await read_until(connection)
    await connection.send(CancelResponse(id="too late"))
    assert model.complaints == ["CancelResponse: `any response` is not in progress"]


async def test_a_result_needs_a_call_and_a_call_has_one_result() -> None:
    model = ScriptedRealtimeModel([])
    connection = await model.connect(TEXT)
    await connection.send(AddItem(ToolMessage("c", "wave", "done"), id="early"))
    await connection.send(AddItem(AssistantMessage("I wave", (ToolCall("c", "wave"),)), item_id="first"))
    await connection.send(AddItem(ToolMessage("c", "wave", "done")))
    await connection.send(AddItem(ToolMessage("c", "wave", "done"), id="twice"))
    await connection.send(AddItem(AssistantMessage(tool_calls=(ToolCall("c", "wave"),)), id="again"))
    await connection.send(AddItem(UserMessage("Hi"), item_id="first", id="taken"))
    await connection.send(AddItem(SystemMessage(""), id="empty"))
    assert errors_of(connection) == [
        ("early", "invalid_tool_call_id"),
        ("twice", "duplicate_tool_call_output"),
        ("again", "duplicate_tool_call_id"),
        ("taken", "item_create_duplicate_item_id"),
        ("empty", "empty_item"),
    ]
    assert connection.told(ItemAdded) == [
        ItemAdded("first", "assistant"),
        ItemAdded("piece_1", "call", "c"),
        ItemAdded("piece_2", "result", "c"),
    ]
    assert len(model.complaints) == 5


async def test_the_voice_cannot_change_after_a_response() -> None:
    # Voice only while no audio was produced.
    model = ScriptedRealtimeModel(["Good day."])
    connection = await model.connect(SessionConfig("Desk", voice="ash"))
    await connection.send(ConfigureSession(SessionConfig("Billing", voice="sage")))
    assert (connection.voice, connection.settings.agent) == ("sage", "Billing")
    await connection.send(CreateResponse())
    await read_until(connection)
    await connection.send(ConfigureSession(SessionConfig("Desk", voice="ash"), id="other voice"))
    assert (errors_of(connection), connection.settings.agent) == (
        [("other voice", "cannot_update_voice")],
        "Billing",
    )
    await connection.send(ConfigureSession(SessionConfig("Desk", voice="ash"), changes_voice=False))
    await connection.send(ConfigureSession(SessionConfig("Desk", voice="sage")))
    assert (connection.voice, connection.settings.agent) == ("sage", "Desk")
    assert len(connection.told(SessionConfigured)) == 3


async def test_the_voice_cannot_change_during_a_response() -> None:
    model = ScriptedRealtimeModel([ScriptedStream("Good day.", asyncio.Event())])
    connection = await model.connect(SessionConfig("Desk", voice="ash"))
    await connection.send(CreateResponse())
    await read_until(connection, AudioChunk)
    await connection.send(ConfigureSession(SessionConfig("Desk", voice="sage")))
    assert [code for _, code in errors_of(connection)] == ["cannot_update_voice"]
    await connection.close()


@pytest.mark.parametrize(
    ("truncate", "code"),
    [
        (TruncateItem("nothing", 0, 0), "item_truncate_invalid_item_id"),
        (TruncateItem("mine", 0, 0), "invalid_value"),
        (TruncateItem("piece_1", 1, 0), "invalid_value"),
        (TruncateItem("piece_1", 0, 401), "invalid_value"),
    ],
)
async def test_only_audio_of_the_model_can_be_truncated(truncate: TruncateItem, code: str) -> None:
    model = ScriptedRealtimeModel(["Good day."], ms_per_word=200)
    connection = await model.connect(SessionConfig("Desk"))
    await connection.send(AddItem(UserMessage("Hi"), item_id="mine"))
    await connection.send(CreateResponse())
    await read_until(connection)
    await connection.send(truncate)
    assert [code for _, code in errors_of(connection)] == [code]
    assert len(model.complaints) == 1
    await connection.send(TruncateItem("piece_1", 0, 400))
    assert len(model.complaints) == 1


async def test_an_empty_audio_buffer_cannot_be_committed() -> None:
    model = ScriptedRealtimeModel([])
    connection = await model.connect(TEXT)
    await connection.send(AppendAudio(speech("Hello")))
    await connection.send(ClearAudio())
    await connection.send(CommitAudio("nothing"))
    assert errors_of(connection) == [("nothing", "input_audio_buffer_commit_empty")]


async def test_after_closing_there_are_no_signals_and_sending_is_a_complaint() -> None:
    # Nothing is sent afterwards.
    model = ScriptedRealtimeModel([ScriptedStream("one", asyncio.Event())])
    connection = await model.connect(TEXT)
    await connection.send(CreateResponse())
    await connection.close()
    await connection.close()
    assert [signal async for signal in connection] == []
    with pytest.raises(ModelConnectionError):
        await connection.send(CreateResponse())
    assert model.complaints == ["CreateResponse after the connection was closed"]


async def test_a_lost_connection_is_raised_after_earlier_signals() -> None:
    model = ScriptedRealtimeModel([ScriptedStream("one", asyncio.Event())])
    connection = await model.connect(TEXT)
    await connection.send(CreateResponse())
    connection.cut()
    assert await read_until(connection, ResponseStarted) == ResponseStarted("response_1")
    with pytest.raises(ModelConnectionError, match="the connection was cut"):
        await read_until(connection)
    with pytest.raises(ModelConnectionError):
        await connection.send(CreateResponse())
    assert model.complaints == []


async def test_a_normal_closure_ends_the_signals() -> None:
    connection = await ScriptedRealtimeModel([]).connect(TEXT)
    connection.end()
    assert len([signal async for signal in connection]) == 1
    assert not connection.is_open


async def test_a_connection_can_be_cut_at_a_command() -> None:
    # A send that failed can be sent again elsewhere.
    model = ScriptedRealtimeModel([call("wave")])
    model.cut_at(AddItem)
    connection = await model.connect(TEXT)
    await connection.send(CreateResponse())
    await read_until(connection)
    result = AddItem(ToolMessage("call_1", "wave", "done"))
    with pytest.raises(ModelConnectionError, match="while sending"):
        await connection.send(result)
    assert connection.sent == [CreateResponse()]
    other = await model.connect(TEXT)
    await other.send(AddItem(AssistantMessage(tool_calls=(ToolCall("call_1", "wave"),))))
    await other.send(result)
    assert model.complaints == []
    assert other.items[0].id == "piece_2"


async def test_a_command_can_be_refused_once() -> None:
    model = ScriptedRealtimeModel([])
    model.refuse(ConfigureSession, code="server_error", message="not now")
    connection = await model.connect(TEXT)
    for id in ("first", "second"):
        await connection.send(ConfigureSession(SessionConfig("Billing"), id=id))
    assert connection.told(ProviderErrorReceived) == [ProviderErrorReceived("server_error", "not now", "first")]
    assert len(connection.told(SessionConfigured)) == 1
    assert model.complaints == []


async def test_connecting_can_fail_a_given_number_of_times() -> None:
    model = ScriptedRealtimeModel([])
    model.fail_to_connect(ModelConnectionError("no route"), OverloadedError("full"))
    for error in (ModelConnectionError, OverloadedError):
        with pytest.raises(error):
            await model.connect(TEXT)
    assert await model.connect(TEXT) is model.connections[0]


async def test_signals_can_be_emitted_by_the_test() -> None:
    connection = await ScriptedRealtimeModel(["one"]).connect(TEXT)
    await connection.send(CreateResponse())
    first = await read_until(connection)
    connection.emit(first, ProviderErrorReceived("made_up", "anything"))
    assert await read_until(connection) == first
    assert await read_until(connection, ProviderErrorReceived) == ProviderErrorReceived("made_up", "anything")


async def test_a_test_can_wait_for_commands_and_for_read_signals() -> None:
    model = ScriptedRealtimeModel(["one", "two"])

    async def client() -> None:
        connection = await model.connect(TEXT)
        await connection.send(CreateResponse("1"))
        await read_until(connection)
        await connection.send(CreateResponse("2"))
        await read_until(connection)

    task = asyncio.create_task(client())
    connection = await model.connection()
    assert await connection.wait_for(CreateResponse, count=2) == CreateResponse("2")
    assert (await connection.wait_until_read(ResponseEnded, count=2)).message.content == "two"
    await task


async def test_a_timeout_names_what_was_received() -> None:
    model = ScriptedRealtimeModel([])
    with pytest.raises(AssertionError, match=r"waited 0\.01 s for connection 1; 0 were opened"):
        await model.connection(within=0.01)
    connection = await model.connect(TEXT)
    await connection.send(AddItem(UserMessage("Hi")))
    with pytest.raises(AssertionError, match=r"waited 0\.01 s for CreateResponse number 1; there came: AddItem"):
        await connection.wait_for(CreateResponse, within=0.01)
    with pytest.raises(AssertionError, match=r"ItemAdded number 1 to be read; there were: nothing"):
        await connection.wait_until_read(ItemAdded, within=0.01)
