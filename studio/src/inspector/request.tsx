/** The request of a model call, as it was sent. */
import { type RequestView } from "../api/schemas";
import { count } from "../formats";
import { Folded } from "./folded";
import { Policies } from "./policies";
import { cacheText } from "./prompt-cache";
import { type Message } from "../log/events";
import { MessageCard } from "../message-card";

const plural = (value: number, noun: string): string =>
  `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

export function Read({ read }: { read: RequestView }) {
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
