// The official AG-UI client against our server. Its own checks reject a stream that breaks a rule of the protocol.
import assert from "node:assert/strict";
import { HttpAgent, buildResumeArray } from "@ag-ui/client";

const url = process.argv[2];
const pick = { name: "pick_color", description: "Let the user pick.", parameters: { type: "object", properties: {} } };

async function run(agent, parameters = {}, onEvent = () => {}) {
  const events = [];
  let outcome;
  const result = await agent.runAgent(parameters, {
    onEvent: ({ event }) => { events.push(event); onEvent(event); },
    onRunFinishedEvent: ({ event }) => { outcome = event.outcome; },
    onRunErrorEvent: ({ event }) => { outcome = { type: "error", message: event.message }; },
  });
  const all = (type) => events.filter((event) => event.type === type);
  return { events, types: events.map((event) => event.type), all, outcome, result };
}

function say(agent, text) {
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: text });
}

function resumed(agent, answers) {
  return { resume: buildResumeArray(agent.pendingInterrupts, answers) };
}

function last(agent) {
  return agent.messages.at(-1).content;
}

const agent = new HttpAgent({ url, threadId: "js", initialState: { old: true, mine: [1] } });

// Words.
say(agent, "plain");
let told = await run(agent);
assert.equal(told.outcome.type, "success");
assert.equal(last(agent), "hello there");

// State: what the client has is taken, told as a snapshot, and changed by deltas.
say(agent, "state");
told = await run(agent);
assert.ok(told.types.indexOf("STATE_SNAPSHOT") < told.types.indexOf("STATE_DELTA"));
assert.deepEqual(told.all("STATE_SNAPSHOT")[0].snapshot, { old: true, mine: [1] });
assert.deepEqual(agent.state, { mine: [1], "a/b": { n: 1 } });

// Agents inside an agent, and one that takes over.
say(agent, "team");
told = await run(agent);
assert.ok(told.types.includes("SUBAGENT_STARTED") && told.types.includes("SUBAGENT_FINISHED"));
assert.equal(last(agent), "the helper said: helped");

const other = new HttpAgent({ url, threadId: "js-transfer" });
say(other, "transfer");
told = await run(other);
assert.deepEqual(told.all("STEP_STARTED").map((event) => event.stepName), ["Desk", "Colleague"]);
assert.deepEqual(told.all("STEP_FINISHED").map((event) => event.stepName), ["Desk", "Colleague"]);
assert.equal(last(other), "with pleasure");

// A question, answered by its id.
say(agent, "ask");
told = await run(agent);
assert.equal(told.outcome.type, "interrupt");
assert.equal(agent.pendingInterrupts.length, 1);
const [question] = agent.pendingInterrupts;
told = await run(agent, resumed(agent, { [question.id]: { status: "resolved", payload: "seven" } }));
assert.equal(told.outcome.type, "success");
assert.equal(last(agent), "you said seven");

// Two questions at once, each with its own answer.
say(agent, "ask twice");
told = await run(agent);
assert.deepEqual(agent.pendingInterrupts.map((asked) => asked.reason).sort(), ["approval", "input"]);
const answers = Object.fromEntries(agent.pendingInterrupts.map((asked) => [
  asked.id, { status: "resolved", payload: asked.reason === "approval" ? true : "eight" },
]));
told = await run(agent, resumed(agent, answers));
assert.equal(told.outcome.type, "success");
assert.deepEqual(told.all("TOOL_CALL_RESULT").map((event) => event.content).sort(), ["eight", "paid"]);

// A question of an agent inside another.
say(agent, "ask inside");
told = await run(agent);
const [inside] = agent.pendingInterrupts;
assert.deepEqual(told.all("SUBAGENT_FINISHED")[0].outcome, { type: "suspended", interruptIds: [inside.id] });
told = await run(agent, resumed(agent, { [inside.id]: { status: "resolved", payload: "nine" } }));
assert.equal(told.outcome.type, "success");
assert.equal(last(agent), "you said nine");

// A question that nobody wants to answer ends the run.
say(agent, "ask");
told = await run(agent);
const [unanswered] = agent.pendingInterrupts;
told = await run(agent, resumed(agent, { [unanswered.id]: { status: "cancelled" } }));
assert.deepEqual(told.outcome, { type: "cancelled" });

// A tool on the user's screen.
say(agent, "screen");
told = await run(agent, { tools: [pick] });
assert.equal(told.outcome.type, "success");
assert.equal(told.outcome.pendingToolCallIds.length, 1);
agent.addMessage({
  id: crypto.randomUUID(), role: "tool", toolCallId: told.outcome.pendingToolCallIds[0], content: "red",
});
told = await run(agent, { tools: [pick] });
assert.equal(last(agent), "you picked red");

// Somebody else cancels the run; then the user breaks off another, which reaches the tool that it is in.
const idle = new HttpAgent({ url, threadId: "js-cancelled" });
say(idle, "stop");
told = await run(idle);
assert.deepEqual(told.outcome, { type: "cancelled" });
const hasty = new HttpAgent({ url, threadId: "js-aborted" });
say(hasty, "linger");
await run(hasty, {}, (event) => { if (event.type === "CUSTOM" && event.name === "lingering") hasty.abortRun(); });
const witness = new HttpAgent({ url, threadId: "js-witness" });
say(witness, "cancelled");
told = await run(witness);
assert.equal(last(witness), "1");

// A failure says nothing that is nobody's business.
say(agent, "fail");
told = await run(agent);
assert.deepEqual(told.outcome, { type: "error", message: "the run failed" });

console.log(`the official client is content: ${agent.messages.length} messages`);
