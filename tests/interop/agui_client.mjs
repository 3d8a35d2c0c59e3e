// The official AG-UI client against our server. Its own checks reject a stream that breaks a rule of the protocol.
import assert from "node:assert/strict";
import { HttpAgent, buildResumeArray } from "@ag-ui/client";

const url = process.argv[2];
const pick = { name: "pick_color", description: "Let the user pick.", parameters: { type: "object", properties: {} } };

async function run(agent, parameters = {}) {
  const seen = [];
  let outcome;
  const result = await agent.runAgent(parameters, {
    onEvent: ({ event }) => { seen.push(event.type); },
    onRunFinishedEvent: ({ event }) => { outcome = event.outcome; },
    onRunErrorEvent: ({ event }) => { outcome = { type: "error", message: event.message }; },
  });
  return { seen, outcome, result };
}

function say(agent, text) {
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: text });
}

const agent = new HttpAgent({ url, threadId: "js" });

say(agent, "plain");
let told = await run(agent);
assert.equal(told.outcome.type, "success");
assert.equal(agent.messages.at(-1).content, "hello");

say(agent, "state");
told = await run(agent);
assert.deepEqual(agent.state, { "a/b": { n: 1 } });

say(agent, "team");
told = await run(agent);
assert.ok(told.seen.includes("SUBAGENT_STARTED") && told.seen.includes("STEP_FINISHED"));
assert.equal(agent.messages.at(-1).content, "the helper said: helped");

say(agent, "ask");
told = await run(agent);
assert.equal(told.outcome.type, "interrupt");
assert.equal(agent.pendingInterrupts.length, 1);
const [question] = agent.pendingInterrupts;
const resume = buildResumeArray(agent.pendingInterrupts, { [question.id]: { status: "resolved", payload: "seven" } });
told = await run(agent, { resume });
assert.equal(told.outcome.type, "success");
assert.equal(agent.messages.at(-1).content, "you said seven");

say(agent, "screen");
told = await run(agent, { tools: [pick] });
assert.equal(told.outcome.type, "success");
assert.equal(told.outcome.pendingToolCallIds.length, 1);
agent.addMessage({
  id: crypto.randomUUID(), role: "tool", toolCallId: told.outcome.pendingToolCallIds[0], content: "red",
});
told = await run(agent, { tools: [pick] });
assert.equal(agent.messages.at(-1).content, "you picked red");

say(agent, "fail");
told = await run(agent);
assert.deepEqual(told.outcome, { type: "error", message: "the run failed" });

console.log(`the official client is content: ${agent.messages.length} messages`);
