"""The endpoints for developers: log, requests, team, forks, replays, comparisons and exports."""

from pathlib import Path
from typing import Any

import pytest
from tests.sockets import Client, client_of

from batonkit import Agent, Runner, handoff, tool
from batonkit.errors import ModelError
from batonkit.messages import Usage
from batonkit.serve import api_app
from batonkit.testing import ScriptedModel, call, say


@tool
def price(item: str) -> str:
    """Return a price.

    Args:
        item: The item.
    """
    return f"{item}: 5 EUR"


def _runner(*, store: Any = "memory:") -> Runner[Any, Any]:
    sales = Agent("Sales", description="Sells.", instructions="You sell.", tools=[price])
    other = Agent("Repairs", description="Repairs.", instructions="You repair.")
    desk = Agent("Desk", instructions="You route.", handoffs=[handoff(sales), handoff(other)])
    steps = {
        "Desk": [say("", call("transfer_to_sales"), usage=Usage(10, 1))],
        "Sales": [call("price", item="tea"), "5 EUR, please."],
        "Repairs": ["I will repair it."],
    }
    return Runner(desk, model=ScriptedModel(steps, cycle=True), store=store)


async def _finish(client: Client, path: str, body: Any) -> dict[str, Any]:
    status, run = await client.post(path, body)
    assert status == 201, run
    async for _ in client.events(f"/runs/{run['id']}/events"):
        pass
    return (await client.get(f"/runs/{run['id']}"))[1]


async def test_a_log_is_read_in_pages_and_by_type() -> None:
    async with client_of(api_app(_runner(), inspection=True)) as client:
        run = await _finish(client, "/runs", {"input": "tea"})
        _, log = await client.get(f"/runs/{run['id']}/log")
        assert [entry["number"] for entry in log["events"]] == [*range(1, run["events"] + 1)]
        assert log["next"] is None
        started = log["events"][0]["event"]
        assert started["team_fingerprint"]["Desk"]
        _, page = await client.get(f"/runs/{run['id']}/log?after=2&limit=3")
        assert ([entry["number"] for entry in page["events"]], page["next"]) == ([3, 4, 5], 5)
        _, some = await client.get(f"/runs/{run['id']}/log?types=ControlTransferred,ToolReturned")
        assert {entry["event"]["type"] for entry in some["events"]} == {"ControlTransferred", "ToolReturned"}
        responses = [each["event"] for each in log["events"] if each["event"]["type"] == "AgentResponded"]
        assert [each["request"].keys() - {"policy", "entries"} for each in responses] == [set()] * 3
        async with client.session.get(f"{client.url}/runs/{run['id']}/log", auto_decompress=False) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
        assert (await client.get(f"/runs/{run['id']}/log?limit=0"))[0] == 422


async def test_the_requests_of_a_run_are_shown_as_sent() -> None:
    runner = _runner()
    async with client_of(api_app(runner, inspection=True)) as client:
        run = await _finish(client, "/runs", {"input": "tea"})
        _, reads = await client.get(f"/runs/{run['id']}/reads")
        assert [entry["agent"] for entry in reads["requests"]] == ["Desk", "Sales", "Sales"]
        assert reads["unrecorded"] == []
        key = reads["requests"][1]["key"]
        _, read = await client.get(f"/runs/{run['id']}/reads/{key}")
        assert read["instructions"] == "You sell."
        assert [each["form"] for each in read["messages"]] == ["same", "rewritten", "rewritten"]
        assert [spec["name"] for spec in read["tools"]] == ["price"]
        assert read["handoff"]["sender"] == "Desk"
        assert (await client.get(f"/runs/{run['id']}/reads/none"))[0] == 404


async def test_a_log_without_requests_says_so() -> None:
    without_store = Runner(_runner().team.members["Desk"].agent, model=ScriptedModel(["hello"]))
    result = await without_store.run("hi")
    runner = _runner()
    fork = await runner.runs.fork(result.events)
    async with client_of(api_app(runner, inspection=True)) as client:
        _, reads = await client.get(f"/runs/{fork}/reads")
        assert (reads["requests"], len(reads["unrecorded"])) == ([], 1)


async def test_the_team_is_shown() -> None:
    async with client_of(api_app(_runner(), inspection=True)) as client:
        _, team = await client.get("/team")
        assert [agent["name"] for agent in team["agents"]] == ["Desk", "Sales", "Repairs"]
        assert [edge["target"] for edge in team["agents"][0]["edges"]] == ["Sales", "Repairs"]


async def test_a_fork_changes_a_tool_result_and_is_compared() -> None:
    async with client_of(api_app(_runner(), inspection=True)) as client:
        run = await _finish(client, "/runs", {"input": "tea", "run_id": "one", "thread": "t"})
        _, log = await client.get("/runs/one/log?types=ToolReturned")
        found = next(each for each in log["events"] if each["event"]["tool_name"] == "price")
        result, number = found["event"]["key"], found["number"]
        fork = await _finish(client, "/runs/one/fork", {"edit": {result: "tea: 9 EUR"}, "run_id": "two"})
        assert (fork["status"], fork["thread"], fork["summary"]["forked_from"]) == ("completed", "", f"one@{number}")
        _, compared = await client.get("/runs/one/compare/two")
        _, log = await client.get("/runs/one/log")
        assert log["events"][compared["shared"]]["event"]["key"] == result
        assert compared["differs_in"] == ["content"]
        assert (await client.get("/runs/one"))[1]["events"] == run["events"]
        _, page = await client.get("/runs?forked_from=one")
        assert [each["id"] for each in page["runs"]] == ["two"]


async def test_a_fork_sends_the_conversation_to_another_agent() -> None:
    # The calls of a response can be changed.
    async with client_of(api_app(_runner(), inspection=True)) as client:
        await _finish(client, "/runs", {"input": "my tea pot broke", "run_id": "one"})
        edit = {"1/m1": {"content": "", "tool_calls": [{"name": "transfer_to_repairs"}]}}
        fork = await _finish(client, "/runs/one/fork", {"edit": edit})
        assert (fork["active_agent"], fork["output"]) == ("Repairs", "I will repair it.")


async def test_a_fork_changes_instructions_and_refuses_unknown_agents_and_models() -> None:
    runner = _runner()
    async with client_of(api_app(runner, inspection=True)) as client:
        await _finish(client, "/runs", {"input": "tea", "run_id": "one"})
        options = {"Desk": {"instructions": "You only sell tea."}}
        fork = await _finish(client, "/runs/one/fork", {"at": 1, "agent_options": options})
        _, read = await client.get(f"/runs/{fork['id']}/reads/1/m1")
        assert read["instructions"] == "You only sell tea."
        assert (await client.post("/runs/one/fork", {"agent_options": {"Nobody": {}}}))[0] == 422
        assert (await client.post("/runs/one/fork", {"model": "nowhere:x"}))[0] == 422
        assert (await client.post("/runs/one/fork", {"at": 999}))[0] == 422
        status, fork = await client.post("/runs/one/fork", {"at": 1, "start": False})
        assert (status, fork["status"]) == (201, "suspended")


async def test_a_replay_says_where_the_code_differs(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    async with client_of(api_app(_runner(store=store), inspection=True)) as client:
        await _finish(client, "/runs", {"input": "tea", "run_id": "one"})
        assert (await client.post("/runs/one/replay"))[1]["matches"] is True
    changed = Runner(Agent("Desk", instructions="Alone."), model=ScriptedModel([]), store=store)
    async with client_of(api_app(changed, inspection=True)) as client:
        _, verdict = await client.post("/runs/one/replay")
        assert verdict["matches"] is False
        _, log = await client.get("/runs/one/log")
        events = {each["event"]["key"]: each["number"] for each in log["events"]}
        assert verdict["key"] not in events
        assert verdict["number"] == events["1/to"]
        assert "skips the recorded `1/to`" in verdict["message"]


async def test_a_replay_of_a_failed_run_differs_if_an_agent_that_has_finished_would_go_on(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    steps: dict[str, list[Any]] = {"Desk": [call("transfer_to_sales")], "Sales": [ModelError("overloaded")]}
    sales = Agent("Sales", description="Sells.")
    for root, matches in ((Agent("Desk", handoffs=[sales]), True), (Agent("Desk"), False)):
        runner = Runner(root, model=ScriptedModel(steps), store=store)
        async with client_of(api_app(runner, inspection=True)) as client:
            if matches:
                with pytest.raises(ModelError):
                    await runner.run("tea", run_id="failed")
            _, verdict = await client.post("/runs/failed/replay")
            assert verdict["matches"] is matches
            assert verdict.get("number") == (None if matches else 5)


async def test_an_export_has_the_log_the_requests_and_the_team() -> None:
    async with client_of(api_app(_runner(), inspection=True)) as client:
        run = await _finish(client, "/runs", {"input": "tea", "run_id": "one"})
        _, exported = await client.get("/runs/one/export")
        assert (exported["format"], exported["run"]["id"], len(exported["events"])) == (1, "one", run["events"])
        assert [each["agent"] for each in exported["requests"]] == ["Desk", "Sales", "Sales"]
        assert exported["team"]["root"] == "Desk"
        _, written = await client.get("/runs/one/test")
        assert "ScriptedModel" in written["source"]
        assert exported["test"] == written["source"]


async def test_developers_endpoints_are_off_by_default_and_events_have_no_requests() -> None:
    async with client_of(api_app(_runner())) as client:
        run = await _finish(client, "/runs", {"input": "tea"})
        for path in ("/team", f"/runs/{run['id']}/log", f"/runs/{run['id']}/reads", f"/runs/{run['id']}/export"):
            assert (await client.get(path))[0] == 404
        assert (await client.post(f"/runs/{run['id']}/fork", {}))[0] == 404
        assert (await client.post(f"/runs/{run['id']}/replay"))[0] == 404
        frames = [frame async for frame in client.events(f"/runs/{run['id']}/events")]
        assert not any('"request"' in frame.get("data", "") for frame in frames)
        assert not any("You sell." in frame.get("data", "") for frame in frames)


async def test_owners_see_only_their_own_logs_and_forks() -> None:
    async with client_of(api_app(_runner(), auth={"a": "ada", "b": "bob"}, inspection=True), "a") as ada:
        await _finish(ada, "/runs", {"input": "tea", "run_id": "one"})
        forked = (await ada.get("/runs/one"))[1]["events"]
        fork = await _finish(ada, "/runs/one/fork", {"run_id": "two"})
        assert fork["summary"]["forked_from"] == f"one@{forked}"
        _, log = await ada.get("/runs/two/log")
        assert (log["events"][0]["event"]["run_id"], log["events"][0]["event"]["forked_from"]) == (
            "two",
            f"one@{forked}",
        )
        bob = Client(ada.session, ada.url, "b")
        for path in ("/runs/one/log", "/runs/one/reads", "/runs/one/export", "/runs/one/compare/two"):
            assert (await bob.get(path))[0] == 404
        assert (await bob.post("/runs/one/fork", {}))[0] == 404
