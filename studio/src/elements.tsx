/** Small elements that several views share. */
import type { ComponentChildren } from "preact";
import { tone } from "./state/team";

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

export const Empty = ({ children }: { children: ComponentChildren }) => (
  <p class="empty">{children}</p>
);

/** What is wrong with a field or a form, beside it. */
export const Problem = ({ text }: { text: string | undefined }) =>
  text ? (
    <p class="wrong" role="alert">
      {text}
    </p>
  ) : null;
