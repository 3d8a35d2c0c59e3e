/** A fork at the chosen event: change what was said, returned or answered, instructions or model. */
import { useEffect, useState } from "preact/hooks";
import { type Fork, api } from "../api/requests";
import { type RequestView } from "../api/schemas";
import { type Draft, draftOf, editOf } from "./draft";
import { type Event, agentOf } from "../log/events";
import { go, runId } from "../state/place";
import { attempt } from "../state/problems";
import { tab } from "../state/shown-run";
import { team } from "../state/team";

/** The agent whose instructions the form changes at first: the event's, or the team's first. */
const starter = (event: Event): string => agentOf(event) || team.value.root;

export function ForkForm({
  event,
  number,
  read,
}: {
  event: Event;
  number: number;
  read: RequestView | null;
}) {
  const before = draftOf(event);
  const [draft, setDraft] = useState(before);
  const [model, setModel] = useState("");
  const [agent, setAgent] = useState(starter(event));
  const [instructions, setInstructions] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    setDraft(draftOf(event));
    setAgent(starter(event));
    setInstructions("");
    setModel("");
  }, [event.key, runId.value]);
  const submit = async (submitted: SubmitEvent): Promise<void> => {
    submitted.preventDefault();
    setBusy(true);
    await attempt(async () => {
      const edit = editOf(before, draft);
      const body: Fork = { at: number };
      if (edit !== undefined) body.edit = { [event.key]: edit };
      if (model) body.model = model;
      if (instructions && agent) body.agent_options = { [agent]: { instructions } };
      const fork = await api.fork(runId.value, body);
      tab.value = "read";
      go(fork.id);
    });
    setBusy(false);
  };
  const names = [
    ...new Set([
      ...(read?.tools ?? []).map((tool) => tool.name),
      ...draft.calls.map((call) => call.name),
    ]),
  ];
  const agents = team.value.agents.map((each) => each.name);
  const setCall = (index: number, part: Partial<Draft["calls"][number]>): void =>
    setDraft({
      ...draft,
      calls: draft.calls.map((call, at) => (at === index ? { ...call, ...part } : call)),
    });
  return (
    <form class="form" onSubmit={(submitted) => void submit(submitted)}>
      <p>
        Start another run with the first {number} {number === 1 ? "event" : "events"} of this one.
        What follows is run again; this run stays as it is.
      </p>
      {draft.kind === "text" && (
        <label>
          {event.type === "RunStarted"
            ? "Words of the user"
            : event.type === "ToolReturned"
              ? `Result of ${event.tool_name}`
              : "Message"}
          <textarea
            rows={4}
            value={draft.text}
            onInput={(input) => setDraft({ ...draft, text: input.currentTarget.value })}
          />
        </label>
      )}
      {draft.kind === "json" && (
        <label>
          {event.type === "InterruptAnswered" ? "Answer (JSON)" : "Result (JSON)"}
          <textarea
            class="mono"
            rows={4}
            value={draft.text}
            onInput={(input) => setDraft({ ...draft, text: input.currentTarget.value })}
          />
        </label>
      )}
      {draft.kind === "response" && (
        <>
          <label>
            Text of {agentOf(event)}
            <textarea
              rows={3}
              value={draft.text}
              onInput={(input) => setDraft({ ...draft, text: input.currentTarget.value })}
            />
          </label>
          {draft.calls.map((call, index) => (
            <fieldset>
              <legend>Tool call {index + 1}</legend>
              <label>
                Tool
                <select
                  value={call.name}
                  onChange={(input) => setCall(index, { name: input.currentTarget.value })}
                >
                  {names.map((name) => (
                    <option>{name}</option>
                  ))}
                </select>
              </label>
              <label>
                Arguments (JSON)
                <textarea
                  class="mono"
                  rows={2}
                  value={call.arguments}
                  onInput={(input) => setCall(index, { arguments: input.currentTarget.value })}
                />
              </label>
              <button
                type="button"
                onClick={() =>
                  setDraft({ ...draft, calls: draft.calls.filter((_, at) => at !== index) })
                }
              >
                Remove the call
              </button>
            </fieldset>
          ))}
          {names.length > 0 && (
            <button
              type="button"
              onClick={() =>
                setDraft({
                  ...draft,
                  calls: [...draft.calls, { name: names[0]!, arguments: "{}" }],
                })
              }
            >
              Add a tool call
            </button>
          )}
        </>
      )}
      <details>
        <summary>Instructions and model</summary>
        {agents.length > 0 && (
          <label>
            Agent
            <select value={agent} onChange={(input) => setAgent(input.currentTarget.value)}>
              {agents.map((name) => (
                <option>{name}</option>
              ))}
            </select>
          </label>
        )}
        <label>
          New instructions for {agent || "the agent"}
          <textarea
            rows={4}
            placeholder={agent === read?.agent ? read.instructions : "as before"}
            value={instructions}
            onInput={(input) => setInstructions(input.currentTarget.value)}
          />
        </label>
        <label>
          Model of all agents
          <input
            placeholder="as before"
            value={model}
            onInput={(input) => setModel(input.currentTarget.value)}
          />
        </label>
      </details>
      <button class="primary" disabled={busy}>
        Fork and run
      </button>
    </form>
  );
}
