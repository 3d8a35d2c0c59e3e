"""A server's requests during a call: elicitation, sampling and roots."""

from pathlib import Path

from tests.mcp.servers import faulty_server_command, runner_with_calls, tool_results

from batonkit.mcp import MCPToolset
from batonkit.testing import call


async def test_an_answer_is_sent_to_a_restarted_process(tmp_path: Path) -> None:
    # The new process cannot read the state of the old one: it repeats the request and gets the recorded answer.
    call_log = tmp_path / "call_log"
    toolset = MCPToolset(faulty_server_command(), env={"CALL_LOG": str(call_log)})
    runner, _ = runner_with_calls(toolset, [call("order", item="hat")])
    result = await runner.run("hi")
    assert not call_log.exists()
    assert tool_results(await runner.resume(result.run_id, {"size": 7})) == ["hat: 7"]
    assert call_log.read_text() == "order hat accept\n"
