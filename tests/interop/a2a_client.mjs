// The official JavaScript client talks with our server: `node a2a_client.mjs URL`. Ends with 1 at the first surprise.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { SendMessageRequest, TaskState } from "@a2a-js/sdk";
import { ClientFactory, ClientFactoryOptions, JsonRpcTransportFactory, RestTransportFactory } from "@a2a-js/sdk/client";

const url = process.argv[2];

function said(text, more = {}) {
  const message = { messageId: randomUUID(), role: "ROLE_USER", parts: [{ text }], ...more };
  return SendMessageRequest.fromJSON({ message });
}

const textOf = (artifact) => artifact.parts.map((part) => part.content.value).join("");

async function talk(client, name) {
  const task = await client.sendMessage(said("hello"));
  assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
  assert.equal(textOf(task.artifacts[0]), "hello there");
  const same = await client.getTask({ id: task.id, tenant: "" });
  assert.deepEqual(same.artifacts, task.artifacts);

  let last, chunks = "";
  for await (const event of client.sendMessageStream(said("hello"))) {
    const { $case, value } = event.payload;
    if ($case === "artifactUpdate") chunks += textOf(value.artifact);
    if ($case === "statusUpdate") last = value.status.state;
  }
  assert.equal(chunks, "hello there");
  assert.equal(last, TaskState.TASK_STATE_COMPLETED);

  const asked = await client.sendMessage(said("ask"));
  assert.equal(asked.status.state, TaskState.TASK_STATE_INPUT_REQUIRED);
  const answered = await client.sendMessage(said("seven", { taskId: asked.id }));
  assert.equal(answered.status.state, TaskState.TASK_STATE_COMPLETED);
  assert.equal(textOf(answered.artifacts.at(-1)), "you said seven");

  const waiting = await client.sendMessage(said("ask"));
  const stopped = await client.cancelTask({ id: waiting.id, tenant: "", metadata: undefined });
  assert.equal(stopped.status.state, TaskState.TASK_STATE_CANCELED);
  await assert.rejects(client.getTask({ id: "nobody", tenant: "" }), /not found/i);
  console.log(`${name}: the official client is content`);
}

for (const [name, transport] of [
  ["JSONRPC", new JsonRpcTransportFactory()],
  ["HTTP+JSON", new RestTransportFactory()],
]) {
  const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports: [transport],
    preferredTransports: [name],
  });
  await talk(await new ClientFactory(options).createFromUrl(url), name);
}
