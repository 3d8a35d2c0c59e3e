"""Authentication is enforced, and callers see only their own tasks."""

from typing import Any

import pytest
from a2a.types.a2a_pb2 import CancelTaskRequest, GetTaskRequest, ListTasksRequest, SubscribeToTaskRequest
from a2a.utils.errors import TaskNotFoundError
from tests.serve.a2a.clients import client_at, read_stream, send, served
from tests.serve.http.auth_cases import CASES
from tests.sockets import http_client

from batonkit import Agent, RunContext, Runner, tool
from batonkit.errors import SetupError
from batonkit.serve import APIKeyAuth, Auth, BearerAuth, JWTAuth
from batonkit.serve.a2a import a2a_app
from batonkit.testing import ScriptedModel, call


@pytest.mark.parametrize(("label", "auth", "good", "bad", "scheme"), CASES, ids=[each[0] for each in CASES])
async def test_each_auth_scheme_is_declared_and_enforced(
    label: str, auth: Auth, good: dict[str, str], bad: list[dict[str, str]], scheme: dict[str, Any]
) -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    app = a2a_app(Agent("A", model=ScriptedModel(["hi"])), auth=auth)
    async with served(app) as url, http_client(base_url=url, headers={"A2A-Version": "1.0"}) as http:
        card = (await http.get("/.well-known/agent-card.json")).json()
        assert card["securitySchemes"] == {auth.name: scheme}
        assert [[*each["schemes"]] for each in card["securityRequirements"]] == [[auth.name]]
        for headers in bad:
            assert (await http.post("/", json=body, headers=headers)).status_code == 401
            refused = await http.get("/tasks", headers=headers)
            assert refused.status_code == 401
            assert refused.headers.get("www-authenticate", "") == auth.challenge
        accepted = await http.post("/", json=body, headers=good)
        assert accepted.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_an_api_key_may_be_in_the_query() -> None:
    app = a2a_app(Agent("A", model=ScriptedModel([])), auth=APIKeyAuth({"k1": "ann"}, location="query", key_name="key"))
    async with served(app) as url, http_client(base_url=url, headers={"A2A-Version": "1.0"}) as http:
        assert (await http.get("/tasks?key=k1")).status_code == 200
        assert (await http.get("/tasks?key=k2")).status_code == 401


async def test_tasks_and_contexts_belong_to_their_callers() -> None:
    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        return await ctx.interrupt("well?")

    model = ScriptedModel([call("ask"), "hi bob", "yes, ann"])
    runner = Runner(Agent("A", tools=[ask]), model=model, store="memory:")
    app = a2a_app(runner, auth=BearerAuth({"t1": "ann", "t2": "bob"}))
    async with served(app) as url:
        ann = client_at(url, streams=False, headers={"Authorization": "Bearer t1"})
        bob = client_at(url, headers={"Authorization": "Bearer t2"})
        async with ann as one, bob as other:
            task = await send(one, "hello", context="c")
            for request in (
                other.get_task(GetTaskRequest(id=task.id)),
                other.cancel_task(CancelTaskRequest(id=task.id)),
                read_stream(other.subscribe(SubscribeToTaskRequest(id=task.id))),
                send(other, "mine now", task=task.id),
            ):
                with pytest.raises(TaskNotFoundError):
                    await request
            assert (await other.list_tasks(ListTasksRequest())).total_size == 0
            # The same context id is a different conversation for another caller.
            await read_stream(other.send_message(_message_request("hello", "c")))
            assert len(model.requests[1].messages) == 1
            assert (await other.list_tasks(ListTasksRequest(context_id="c"))).total_size == 1
            assert (await send(one, "yes", task=task.id)).id == task.id


async def test_an_anonymous_caller_cannot_access_another_callers_context() -> None:
    model = ScriptedModel(["hi ann", "hi you", "hi again", "hi ann again"])
    runner = Runner(Agent("A"), model=model, store="memory:")
    for_ann, for_all = a2a_app(runner, auth=BearerAuth({"t1": "ann"})), a2a_app(runner)
    async with served(for_ann) as url_for_ann, served(for_all) as url_for_all:
        ann = client_at(url_for_ann, streams=False, headers={"Authorization": "Bearer t1"})
        async with ann as one, client_at(url_for_all, streams=False) as other:
            her_task = await send(one, "a secret", context="c")
            task = await send(other, "hello", context="ann:c")
            await send(other, "hello", context=task.context_id)
            await send(one, "me", context="c")
            assert [len(request.messages) for request in model.requests] == [1, 1, 3, 3]
            assert task.context_id == "ann:c"
            page = await other.list_tasks(ListTasksRequest(context_id="ann:c"))
            assert (page.total_size, her_task.id in [each.id for each in page.tasks]) == (2, False)
            with pytest.raises(TaskNotFoundError):
                await other.get_task(GetTaskRequest(id=her_task.id))


async def test_the_holder_of_a_single_token_sees_all_tasks() -> None:
    runner = Runner(Agent("A"), model=ScriptedModel(["hi"]), store="memory:")
    async with (
        served(a2a_app(runner, auth={"t1": "ann"})) as url_for_ann,
        served(a2a_app(runner, auth="root")) as url_for_all,
    ):
        ann = client_at(url_for_ann, streams=False, headers={"Authorization": "Bearer t1"})
        root = client_at(url_for_all, streams=False, headers={"Authorization": "Bearer root"})
        async with ann as one, root as other:
            task = await send(one, "hello")
            assert [each.id for each in (await other.list_tasks(ListTasksRequest())).tasks] == [task.id]


def _message_request(text: str, context: str) -> Any:
    from tests.serve.a2a.clients import message_request

    return message_request(text, context=context)


def test_a_service_without_auth_cannot_listen_on_other_interfaces() -> None:
    app = a2a_app(Agent("A", model=ScriptedModel([])))
    with pytest.raises(SetupError, match=r"`0\.0\.0\.0` can be reached from other machines"):
        app.run(host="0.0.0.0")
    with pytest.raises(SetupError, match="must name the signature algorithms"):
        JWTAuth("key", algorithms=["none"])


async def test_without_auth_only_local_hosts_are_served_by_every_route() -> None:
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
    rebound = {"Host": "rebound.example", "A2A-Version": "1.0"}
    requests: list[tuple[str, str, Any]] = [
        ("GET", "/.well-known/agent-card.json", None),
        ("GET", "/", None),
        ("POST", "/", body),
        ("GET", "/tasks", None),
        ("GET", "/tasks/x", None),
        ("POST", "/message:send", {}),
        ("POST", "/message:stream", {}),
        ("POST", "/tasks/x:cancel", None),
        ("GET", "/extendedAgentCard", None),
    ]
    legacy: list[tuple[str, str, Any]] = [("GET", "/v1/card", None), ("POST", "/v1/message:send", {})]
    async with (
        served(a2a_app(Agent("A", model=ScriptedModel([])), compat_03=True)) as url,
        http_client(base_url=url) as http,
    ):
        for method, path, content in requests:
            refused = await http.request(method, path, json=content, headers=rebound)
            assert refused.status_code == 403, path
        for method, path, content in legacy:
            refused = await http.request(method, path, json=content, headers={**rebound, "A2A-Version": "0.3"})
            assert refused.status_code == 403, path
        assert (await http.get("/.well-known/agent-card.json")).status_code == 200
    public: list[dict[str, Any]] = [{"allow_anonymous": True}, {"auth": "t"}]
    for options in public:
        app = a2a_app(Agent("A", model=ScriptedModel([])), **options)
        async with served(app) as url, http_client(base_url=url) as http:
            card = await http.get("/.well-known/agent-card.json", headers=rebound)
            assert card.status_code == 200, "clients must be able to read the card of a public service"
