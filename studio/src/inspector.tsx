/** The chosen event: what the agent read, what the handoff changed, the event itself, and a fork from here. */
import { diffWords } from "diff";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import {
  agentOf,
  blockText,
  count,
  describe,
  type Event,
  type Message,
  type RequestView,
  type RunUsage,
} from "./model";
import { Chip, Empty, MessageCard } from "./parts";
import { api, exported } from "./api";
import { ForkForm } from "./fork";
import { chosen, config, loaded, log, readRequest, runId, tab } from "./state";
import { isLive } from "./timeline";

/** The model call that an event is about: of a transfer, the receiver's first one; else the last one before it. */
export function callOf(events: Event[], index: number): number {
  const event = events[index];
  if (!event) return -1;
  const isCall = (each: Event): boolean => each.type === "AgentResponded" && !!each.model;
  if (event.type === "ControlTransferred") {
    for (let at = index + 1; at < events.length; at++)
      if (isCall(events[at]!) && agentOf(events[at]!) === event.target) return at;
  }
  const id = event.origin?.[0];
  for (let at = index; at >= 0; at--)
    if (isCall(events[at]!) && (!id || events[at]!.origin[0] === id)) return at;
  for (let at = index + 1; at < events.length; at++) if (isCall(events[at]!)) return at;
  return -1;
}

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

const HEAD = 8;
const TAIL = 32;
/** A long list with its middle folded, so that a request of thousands of messages stays cheap to show. */
function Folded<T>({
  items,
  show,
}: {
  items: T[];
  show: (item: T, index: number) => ComponentChildren;
}) {
  const [more, setMore] = useState(0);
  const end = items.length - TAIL - more;
  if (items.length <= HEAD + TAIL || end <= HEAD) return <>{items.map(show)}</>;
  return (
    <>
      {items.slice(0, HEAD).map(show)}
      <button class="unfold" onClick={() => setMore(more + 60)}>
        {count(end - HEAD)} more messages, show 60
      </button>
      {items.slice(end).map((item, index) => show(item, end + index))}
    </>
  );
}

const plural = (value: number, noun: string): string =>
  `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
function Read({ read }: { read: RequestView }) {
  const settings = Object.entries(read.settings ?? {}).filter(
    ([, value]) =>
      value !== null &&
      value !== undefined &&
      !(typeof value === "object" && !Object.keys(value as object).length),
  );
  return (
    <>
      <div class="facts">
        <span>{plural(read.messages.length, "message")}</span>
        <span>{plural(read.tools.length, "tool")}</span>
        <span>≈ {count(read.tokens)} tokens</span>
        <span>
          history <b>{read.policy}</b>
        </span>
        {read.model && <span>{read.model}</span>}
      </div>
      {read.cache && <p class="cache">{cacheText(read)}</p>}
      <section class="msg system">
        <div class="head">
          <span>Instructions</span>
        </div>
        <p>{read.instructions || "(none)"}</p>
      </section>
      <Folded
        items={read.messages}
        key={read.key}
        show={(each, index) => (
          <>
            <MessageCard
              message={each.message as Message | null}
              mark={each.form}
              agent={each.agent}
              tokens={each.tokens}
            />
            {read.cache?.breaks_at === "messages" && read.cache.messages === index + 1 && (
              <hr class="break" title="The prompt-cache prefix ends here" />
            )}
          </>
        )}
      />
      {read.tools.length > 0 && (
        <>
          <h2>Tools</h2>
          <ul class="tools">
            {read.tools.map((tool) => (
              <li>
                <details>
                  <summary>
                    <code>{tool.name}</code>
                    <span>{(tool.description ?? "").split("\n")[0]}</span>
                  </summary>
                  <pre>{JSON.stringify(tool.parameters, null, 2)}</pre>
                </details>
              </li>
            ))}
          </ul>
        </>
      )}
      {(settings.length > 0 || read.tool_choice) && (
        <>
          <h2>Settings</h2>
          <pre>
            {JSON.stringify(
              Object.fromEntries([
                ...settings,
                ...(read.tool_choice ? [["tool_choice", read.tool_choice]] : []),
              ]),
              null,
              2,
            )}
          </pre>
        </>
      )}
      <Policies current={read.policy} />
      {read.output_schema && (
        <>
          <h2>Output schema</h2>
          <pre>{JSON.stringify(read.output_schema, null, 2)}</pre>
        </>
      )}
    </>
  );
}

/** What the agents of the whole run would have read with each history policy. */
function Policies({ current }: { current: string }) {
  const [rows, setRows] = useState<RunUsage["by_policy"]>([]);
  useEffect(() => {
    setRows([]);
    if (!exported)
      void api.runUsage(runId.value).then(
        (usage) => setRows(usage.by_policy),
        () => setRows([]),
      );
  }, [runId.value]);
  const now = rows.find((row) => row.policy === current)?.tokens ?? 0;
  if (!rows.length) return null;
  return (
    <>
      <h2>History policies, messages of the whole run</h2>
      <table class="numbers">
        <tbody>
          {rows.map((row) => (
            <tr>
              <th scope="row">
                {row.policy}
                {row.policy === current ? " (this call)" : ""}
              </th>
              <td>≈ {count(row.tokens)} tokens</td>
              <td>
                {now && row.policy !== current
                  ? `${row.tokens >= now ? "+" : "−"}${Math.abs(Math.round((row.tokens / now - 1) * 100))} %`
                  : ""}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

function cacheText(read: RequestView): string {
  const cache = read.cache!;
  const kept = `≈ ${count(cache.tokens)} of ${count(read.tokens)} tokens are as in the call before.`;
  if (cache.breaks_at === "none") return `Prompt-cache prefix kept: ${kept}`;
  if (cache.breaks_at === "messages")
    return `Prompt-cache prefix breaks after message ${cache.messages}: ${kept}`;
  const lost = "nothing after them can be read from the cache of the call before.";
  return `Prompt-cache prefix breaks at the ${cache.breaks_at}: ${lost}`;
}

function Diff({ read }: { read: RequestView }) {
  const diff = read.handoff;
  if (!diff)
    return (
      <Empty>
        Control did not come from another agent by a transfer, so there is nothing to compare.
      </Empty>
    );
  const number = (mark: string): number =>
    diff.messages.filter((each) => each.mark === mark).length;
  const why =
    diff.policy === "filter"
      ? "by the handoff's filter"
      : diff.policy === "function"
        ? "by a history function"
        : `by the policy “${diff.policy}”`;
  return (
    <>
      <div class="facts">
        <span>{number("same")} verbatim</span>
        <span class="rewritten">~ {number("rewritten")} rewritten</span>
        <span class="withheld">− {number("withheld")} withheld</span>
        <span class="added">+ {number("added")} added</span>
        <span>
          ≈ {count(diff.tokens_before)} → {count(diff.tokens_after)} tokens
        </span>
      </div>
      <p class="cache">
        Selected {why}. {read.cache ? cacheText(read) : ""}
      </p>
      <MessageCard message={null} mark="withheld" title={`${diff.sender}'s instructions`}>
        <p>{diff.instructions || "(none)"}</p>
      </MessageCard>
      <MessageCard message={null} mark="added" title={`${read.agent}'s instructions`}>
        <p>{read.instructions || "(none)"}</p>
      </MessageCard>
      <Folded
        items={diff.messages}
        key={read.key}
        show={(each) => (
          <MessageCard
            message={each.message as Message | null}
            mark={each.mark}
            agent={each.agent}
            tokens={each.tokens}
          >
            {each.mark === "rewritten" && each.original ? (
              <Words
                before={blockText(each.original as Message)}
                after={blockText(each.message as Message)}
              />
            ) : undefined}
          </MessageCard>
        )}
      />
      {(diff.added_tools.length > 0 || diff.removed_tools.length > 0) && (
        <>
          <h2>Tools</h2>
          <p class="toolset">
            {diff.removed_tools.map((name) => (
              <code class="withheld">− {name}</code>
            ))}
            {diff.added_tools.map((name) => (
              <code class="added">+ {name}</code>
            ))}
          </p>
        </>
      )}
    </>
  );
}

/** The words of both forms: those that were dropped are struck out, new ones are marked. */
export const Words = ({ before, after }: { before: string; after: string }) => (
  <p>
    {diffWords(before, after).map((part) =>
      part.added ? <ins>{part.value}</ins> : part.removed ? <del>{part.value}</del> : part.value,
    )}
  </p>
);
