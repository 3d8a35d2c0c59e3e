/** The keys of the page. */
import { signal } from "@preact/signals";
import { isNarrow, view } from "./layout/views";
import { step, stepTransfer, tab } from "./state/shown-run";
import { config } from "./state/team";

/** Whether the list of keys is shown. */
export const isHelpOpen = signal(false);

interface Shortcut {
  /** The keys, as events name them. */
  keys: string[];
  text: string;
  act: () => void;
}

const showTab = (name: typeof tab.value) => (): void => {
  tab.value = name;
  if (isNarrow.value) view.value = "details";
};

export const SHORTCUTS: Shortcut[] = [
  { keys: ["j", "ArrowDown"], text: "Next event", act: () => step(1) },
  { keys: ["k", "ArrowUp"], text: "Previous event", act: () => step(-1) },
  { keys: ["]"], text: "Next transfer", act: () => stepTransfer(1) },
  { keys: ["["], text: "Previous transfer", act: () => stepTransfer(-1) },
  { keys: ["Home"], text: "First event", act: () => step(-1e9) },
  { keys: ["End"], text: "Last event", act: () => step(1e9) },
  { keys: ["t"], text: "Timeline", act: () => (view.value = "timeline") },
  { keys: ["c"], text: "Conversation", act: () => (view.value = "conversation") },
  { keys: ["r"], text: "What the agent read", act: showTab("read") },
  { keys: ["d"], text: "Diff of the handoff", act: showTab("diff") },
  { keys: ["v"], text: "Values at the event", act: showTab("values") },
  { keys: ["e"], text: "The event as JSON", act: showTab("event") },
  {
    keys: ["f"],
    text: "Fork at the event",
    act: () => {
      if (config.value.can_write) showTab("fork")();
    },
  },
  {
    keys: ["/"],
    text: "Find runs",
    act: () => document.querySelector<HTMLInputElement>(".find input")?.focus(),
  },
  { keys: ["?"], text: "Keyboard shortcuts", act: () => (isHelpOpen.value = true) },
];

/** Elements in which the arrow keys, Home and End have a meaning of their own. */
const SCROLLED = ".sidebar, .body, .lanes, .lines";

export function onKey(event: KeyboardEvent): void {
  const target = event.target as HTMLElement;
  const isArrow = event.key.startsWith("Arrow");
  if (event.ctrlKey || event.metaKey || event.altKey || isHelpOpen.value) return;
  if (target.matches("input, textarea, select") || (isArrow && target.closest(SCROLLED))) return;
  const shortcut = SHORTCUTS.find(({ keys }) => keys.includes(event.key));
  if (!shortcut) return;
  shortcut.act();
  event.preventDefault();
}
