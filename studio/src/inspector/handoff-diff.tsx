/** What the sender of a handoff had, and what the receiver got. */
import { type RequestView } from "../api/schemas";
import { Empty } from "../elements";
import { count } from "../formats";
import { Folded } from "./folded";
import { cacheText } from "./prompt-cache";
import { type Message, blockText } from "../log/events";
import { MessageCard } from "../message-card";
import { Words } from "../words";

export function Diff({ read }: { read: RequestView }) {
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
