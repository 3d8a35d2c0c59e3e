/** A message of a request. */
import type { ComponentChildren } from "preact";
import { Chip } from "./elements";
import { type Message, blockText } from "./log/events";

interface CardProps {
  message: Message | null | undefined;
  mark?: string;
  agent?: string;
  tokens?: number;
  title?: string;
  children?: ComponentChildren;
}

/** A message; its content is text, never HTML. */
export const MessageCard = ({
  message,
  mark = "",
  agent = "",
  tokens,
  title,
  children,
}: CardProps) => {
  const role = message?.role ?? "deleted";
  const media = Array.isArray(message?.content) ? message.content : [];
  return (
    <section class={`msg ${role} ${mark}`}>
      <div class="head">
        <span>{title ?? role}</span>
        {message?.tool_name && <code>{message.tool_name}</code>}
        {agent && <Chip agent={agent} />}
        {mark && mark !== "same" && <em class={`mark ${mark}`}>{mark}</em>}
        {tokens !== undefined && <small>≈ {tokens}</small>}
      </div>
      {children ?? <p>{blockText(message)}</p>}
      {media.map((part: { type?: string; data?: string; media_type?: string }) =>
        part.type === "image" && part.data ? (
          <img alt="" src={`data:${part.media_type ?? "image/png"};base64,${part.data}`} />
        ) : null,
      )}
    </section>
  );
};
