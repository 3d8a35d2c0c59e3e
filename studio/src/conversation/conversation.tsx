/** The conversation of the shown run. */
import { useEffect, useState } from "preact/hooks";
import { Composer } from "./composer";
import { conversation } from "./lines";
import { Chip, Empty } from "../elements";
import { go, runId } from "../state/place";
import { detail, isRunning, log, partial } from "../state/shown-run";
import { config } from "../state/team";

/** The conversation of the shown run, in the words of its user and agents. */
export function Conversation() {
  const events = log.value;
  const thread = events[0]?.thread ?? "";
  const [shown, setShown] = useState(false);
  useEffect(() => {
    if (isRunning.value) setShown(true);
  }, [runId.value, isRunning.value]);
  const said = conversation(events);
  const canReply =
    config.value.can_write &&
    !!thread &&
    !!detail.value &&
    !isRunning.value &&
    detail.value.status !== "suspended";
  if (!shown)
    return (
      <button class="reveal" onClick={() => setShown(true)} aria-expanded="false">
        Conversation{canReply ? " and reply" : ""}
      </button>
    );
  return (
    <section class="chat" aria-label="Conversation">
      <header>
        <h2>Conversation</h2>
        <button class="plain" onClick={() => setShown(false)} aria-expanded="true">
          Hide
        </button>
      </header>
      <div class="lines" aria-live="polite">
        {said.slice(-60).map((each) => (
          <p
            class={each.who ? "agent" : "user"}
            title={each.agent !== each.who ? each.agent : undefined}
            onClick={() => go(runId.value, each.index + 1)}
          >
            {each.who ? <Chip agent={each.who} /> : <b>You</b>}
            <span>{each.text}</span>
          </p>
        ))}
        {partial.value && (
          <p class="agent partial">
            <Chip agent={partial.value.agent} />
            <span>{partial.value.text}</span>
          </p>
        )}
        {!said.length && <Empty>Nothing was said.</Empty>}
      </div>
      {canReply && <Composer thread={thread} placeholder={`Reply in thread ${thread}`} />}
    </section>
  );
}
