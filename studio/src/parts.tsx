/** Small elements that several views share. */
import type { ComponentChildren } from "preact";
import { tone } from "./state";
import { blockText, type Message } from "./model";

const GLYPHS: Record<string, string> = {
  completed: "M3.4 6.3 5.3 8.2 8.8 4",
  failed: "M4 4l4 4m0-4l-4 4",
  suspended: "M4.6 3.8v4.4M7.4 3.8v4.4",
  cancelled: "M3.6 6h4.8",
  waiting: "M6 3.4V6l1.8 1.2",
};
export const Status = ({ of }: { of: string }) => (
  <svg class={`status ${of}`} viewBox="0 0 12 12" role="img" aria-label={of}>
    <circle cx="6" cy="6" r="5.2" />
    {of === "running" ? (
      <circle class="pulse" cx="6" cy="6" r="2" />
    ) : (
      <path d={GLYPHS[of] ?? ""} />
    )}
  </svg>
);

export const Chip = ({ agent }: { agent: string }) => (
  <span class={`chip ${tone(agent)}`}>
    <i />
    {agent || "run"}
  </span>
);

export const Fact = ({ name, children }: { name: string; children: ComponentChildren }) => (
  <div>
    <dt>{name}</dt>
    <dd>{children}</dd>
  </div>
);

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

export const Empty = ({ children }: { children: ComponentChildren }) => (
  <p class="empty">{children}</p>
);
