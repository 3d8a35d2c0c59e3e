/** The head of a run: what happened in numbers, errors first. */
import { exported } from "../api/exported";
import { Fact } from "../elements";
import { count, duration, money } from "../formats";
import { messageOf, textOf } from "../log/events";
import { totals } from "../log/totals";
import { Actions } from "./actions";
import { fingerprint } from "./fingerprint";
import { go, runId } from "../state/place";
import { runs } from "../state/runs";
import { detail, log, timeline } from "../state/shown-run";
import { Status } from "../status";

export function RunHeader() {
  const events = log.value;
  const started = events[0];
  const drawn = timeline.value;
  const sum = totals(events);
  const run = detail.value;
  const status =
    run?.status ?? runs.value.find((each) => each.id === runId.value)?.status ?? "running";
  const failed = events.findLast((event) => event.type === "RunFailed");
  const transfers = drawn.hops.filter((hop) => !hop.refused).length;
  const errors = events.filter(
    (event) => event.type === "ToolReturned" && event.is_error && !event.requested_agent,
  ).length;
  const words =
    (started?.input ?? []).findLast((each) => each.role === "user")?.content ??
    events
      .filter((event) => event.type === "UserMessageAdded")
      .map((event) => messageOf(event)?.content)[0];
  const origin = started?.forked_from?.replace(/@\d+$/, "");
  return (
    <header class="top">
      <div class="headline">
        <div class="title">
          <h1>{textOf(words) || runId.value}</h1>
          <p>
            <Status of={status} />
            <span>{status}</span>
            <code>{runId.value}</code>
            {started?.thread && (
              <span>
                thread <code>{started.thread}</code>
              </span>
            )}
            {origin && (
              <span>
                fork of{" "}
                <a href={`#${origin}`}>
                  <code>{started!.forked_from}</code>
                </a>
                {!exported && (
                  <>
                    {" "}
                    · <a href={`#/compare/${origin}/${runId.value}`}>compare</a>
                  </>
                )}
              </span>
            )}
            {started?.team_fingerprint && (
              <span
                title={Object.entries(started.team_fingerprint)
                  .map(([name, print]) => `${name}: ${print}`)
                  .join("\n")}
              >
                team <code>{fingerprint(started.team_fingerprint)}</code>
              </span>
            )}
          </p>
        </div>
        <dl>
          {errors > 0 && (
            <Fact name="Tool errors">
              <span class="bad">{errors}</span>
            </Fact>
          )}
          <Fact name="Took">
            {duration(drawn.busy)}
            {drawn.waited >= 0.05 && <small> +{duration(drawn.waited)} waiting</small>}
          </Fact>
          <Fact name="Transfers">
            {count(transfers)}
            {drawn.refused > 0 && <small class="bad"> +{drawn.refused} refused</small>}
          </Fact>
          <Fact name="Tokens">{count(sum.tokens)}</Fact>
          {(sum.cost > 0 || sum.unpriced > 0) && (
            <Fact name="Cost">
              {sum.cost > 0 && money(sum.cost)}
              {sum.unpriced > 0 && (
                <small title="The prices of the models of these calls are unknown.">
                  {" "}
                  {sum.cost > 0 && "+"}
                  {count(sum.unpriced)} unpriced
                </small>
              )}
            </Fact>
          )}
        </dl>
      </div>
      {failed && status === "failed" && (
        <button class="failure" onClick={() => go(runId.value, events.indexOf(failed) + 1)}>
          <b>{failed.error_type}</b> {typeof failed.message === "string" ? failed.message : ""}
        </button>
      )}
      <Actions status={status} key={runId.value} />
    </header>
  );
}
