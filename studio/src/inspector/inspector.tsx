/** The chosen event: what the agent read, what the handoff changed, the event itself, and a fork from here. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { type RequestView } from "../api/schemas";
import { Chip, Empty } from "../elements";
import { ForkForm } from "../fork/fork-form";
import { Values } from "./values";
import { Diff } from "./handoff-diff";
import { callOf } from "./model-call";
import { Read } from "./request";
import { isLive } from "../lanes/speech";
import { describe } from "../log/descriptions";
import { type Event, agentOf } from "../log/events";
import { readRequest } from "../state/recorded-requests";
import { chosen, loaded, log, tab } from "../state/shown-run";
import { config } from "../state/team";

function whyMissing(message: string, events: Event[]): string {
  if (!message.includes("no recorded request")) return message;
  if (isLive(events))
    return "In a live conversation the model keeps what was said, so no request was sent for this response.";
  return "This response has no recorded request: its log was written without a store, or by another version.";
}

export function Inspector() {
  const events = log.value;
  const event = events[chosen.value];
  const call = useMemo(() => callOf(events, chosen.value), [events, chosen.value]);
  const key = events[call]?.key ?? "";
  const agent = events[call] ? agentOf(events[call]!) : "";
  const [read, setRead] = useState<RequestView | null>(null);
  const [missing, setMissing] = useState("");
  useEffect(() => {
    setMissing("");
    if (!key) {
      setRead(null);
      return;
    }
    if (isLive(events)) {
      setRead(null);
      setMissing("no recorded request");
      return;
    }
    let isCurrent = true;
    readRequest(loaded.value, key).then(
      (found) => {
        if (isCurrent) setRead(found);
      },
      (error: Error) => {
        if (isCurrent) {
          setRead(null);
          setMissing(error.message);
        }
      },
    );
    return () => {
      isCurrent = false;
    };
  }, [key, loaded.value, isLive(events)]);
  if (!event) return <aside class="inspector" aria-label="Inspector" />;
  const [kind] = describe(event);
  const tabs: [typeof tab.value, string][] = [
    ["read", agent ? `What ${agent} read` : "What it read"],
    [
      "diff",
      read?.handoff && read.key === key ? `Diff · ${read.handoff.sender} → ${agent}` : "Diff",
    ],
    ["values", "Values"],
    ["event", "Event"],
    ...(config.value.can_write ? [["fork", "Fork"] as ["fork", string]] : []),
  ];
  return (
    <aside class="inspector" aria-label="Inspector">
      <header>
        <Chip agent={agentOf(event)} />
        <b>{kind}</b>
        <code title="The key of the event">{event.key}</code>
      </header>
      <div class="tabs" role="tablist" aria-label="Inspector">
        {tabs.map(([name, label]) => (
          <button
            role="tab"
            id={`tab-${name}`}
            aria-selected={tab.value === name}
            aria-controls="panel"
            onClick={() => (tab.value = name)}
          >
            {label}
          </button>
        ))}
      </div>
      <div
        class="body"
        id="panel"
        role="tabpanel"
        tabIndex={0}
        aria-labelledby={`tab-${tab.value}`}
      >
        {tab.value === "values" && <Values />}
        {tab.value === "event" && <pre>{JSON.stringify(event, null, 2)}</pre>}
        {tab.value === "fork" && <ForkForm event={event} number={chosen.value + 1} read={read} />}
        {(tab.value === "read" || tab.value === "diff") &&
          (missing ? (
            <Empty>{whyMissing(missing, events)}</Empty>
          ) : !key ? (
            <Empty>No model was called here.</Empty>
          ) : read && read.key === key ? (
            tab.value === "read" ? (
              <Read read={read} />
            ) : (
              <Diff read={read} />
            )
          ) : null)}
      </div>
    </aside>
  );
}
