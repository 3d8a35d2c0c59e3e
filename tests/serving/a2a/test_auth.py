"""Who may do what: callers are asked for their names, and see their own tasks alone."""

from typing import Any

import httpx
import pytest
from a2a.types.a2a_pb2 import CancelTaskRequest, GetTaskRequest, ListTasksRequest, SubscribeToTaskRequest
from a2a.utils.errors import TaskNotFoundError
from tests.serving.a2a.stage import client_at, sent, served, streamed
from tests.serving.http.ways import CASES

from baton import Agent, RunContext, Runner, tool
from baton.errors import SetupError
from baton.serving import APIKeyAuth, Auth, BearerAuth, JWTAuth
from baton.serving.a2a import a2a_app
from baton.testing import ScriptedModel, call


@pytest.mark.parametrize(("what", "auth", "good", "bad", "scheme"), CASES, ids=[each[0] for each in CASES])
async def test_each_way_is_declared_and_enforced(
    what: str, auth: Auth, good: dict[str, str], bad: list[dict[str, str]], scheme: dict[str, Any]
) -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    app = a2a_app(Agent("A", model=ScriptedModel(["hi"])), auth=auth)
    async with served(app) as url, httpx.AsyncClient(base_url=url, headers={"A2A-Version": "1.0"}) as http:
        card = (await http.get("/.well-known/agent-card.json")).json()
        assert card["securitySchemes"] == {auth.name: scheme}
        assert [[*each["schemes"]] for each in card["securityRequirements"]] == [[auth.name]]
        for headers in bad:
            assert (await http.post("/", json=body, headers=headers)).status_code == 401
            refused = await http.get("/tasks", headers=headers)
            assert refused.status_code == 401
            assert refused.headers.get("www-authenticate", "") == auth.challenge
        taken = await http.post("/", json=body, headers=good)
        assert taken.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_key_in_the_query() -> None:
    app = a2a_app(Agent("A", model=ScriptedModel([])), auth=APIKeyAuth({"k1": "ann"}, location="query", key_name="key"))
    async with served(app) as url, httpx.AsyncClient(base_url=url, headers={"A2A-Version": "1.0"}) as http:
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
            task = await sent(one, "hello", context="c")
            for request in (
                other.get_task(GetTaskRequest(id=task.id)),
                other.cancel_task(CancelTaskRequest(id=task.id)),
                streamed(other.subscribe(SubscribeToTaskRequest(id=task.id))),
                sent(other, "mine now", task=task.id),
            ):
                with pytest.raises(TaskNotFoundError):
                    await request
            assert (await other.list_tasks(ListTasksRequest())).total_size == 0
            # The same context id is another conversation for somebody else.
            await streamed(other.send_message(_said("hello", "c")))
            assert len(model.requests[1].messages) == 1
            assert (await other.list_tasks(ListTasksRequest(context_id="c"))).total_size == 1
            assert (await sent(one, "yes", task=task.id)).id == task.id


async def test_who_has_no_name_gets_into_nobodys_context() -> None:
    # X7
    model = ScriptedModel(["hi ann", "hi you", "hi again", "hi ann again"])
    runner = Runner(Agent("A"), model=model, store="memory:")
    for_ann, for_all = a2a_app(runner, auth=BearerAuth({"t1": "ann"})), a2a_app(runner)
    async with served(for_ann) as here, served(for_all) as there:
        ann = client_at(here, streams=False, headers={"Authorization": "Bearer t1"})
        async with ann as one, client_at(there, streams=False) as other:
            hers = await sent(one, "a secret", context="c")
            task = await sent(other, "hello", context="ann:c")
            await sent(other, "hello", context=task.context_id)
            await sent(one, "me", context="c")
            assert [len(request.messages) for request in model.requests] == [1, 1, 3, 3]
            assert task.context_id == "ann:c"
            page = await other.list_tasks(ListTasksRequest(context_id="ann:c"))
            assert (page.total_size, hers.id in [each.id for each in page.tasks]) == (2, False)
            with pytest.raises(TaskNotFoundError):
                await other.get_task(GetTaskRequest(id=hers.id))


async def test_whoever_has_the_only_token_sees_everything() -> None:
    runner = Runner(Agent("A"), model=ScriptedModel(["hi"]), store="memory:")
    async with served(a2a_app(runner, auth={"t1": "ann"})) as here, served(a2a_app(runner, auth="root")) as there:
        ann = client_at(here, streams=False, headers={"Authorization": "Bearer t1"})
        root = client_at(there, streams=False, headers={"Authorization": "Bearer root"})
        async with ann as one, root as other:
            task = await sent(one, "hello")
            assert [each.id for each in (await other.list_tasks(ListTasksRequest())).tasks] == [task.id]


def _said(text: str, context: str) -> Any:
    from tests.serving.a2a.stage import said

    return said(text, context=context)


def test_a_service_without_auth_stays_on_this_machine() -> None:
    app = a2a_app(Agent("A", model=ScriptedModel([])))
    with pytest.raises(SetupError, match=r"`0\.0\.0\.0` can be reached from other machines"):
        app.run(host="0.0.0.0")
    with pytest.raises(SetupError, match="must name the signature algorithms"):
        JWTAuth("key", algorithms=["none"])
