/** The sizes of panes that the user has dragged, in pixels. */
import { effect } from "@preact/signals";
import { remembered } from "../state/remembered";

export type Pane = "sidebar" | "lanes" | "inspector-width" | "inspector-height";
export const sizes = remembered<Partial<Record<Pane, number>>>("sizes", {});

export function resize(pane: Pane, pixels: number): void {
  sizes.value = { ...sizes.value, [pane]: Math.round(pixels) };
}
/** Give a pane the size that it has by default. */
export function reset(pane: Pane): void {
  document.documentElement.style.removeProperty(`--${pane}`);
  sizes.value = Object.fromEntries(Object.entries(sizes.value).filter(([name]) => name !== pane));
}

effect(() => {
  for (const [pane, pixels] of Object.entries(sizes.value))
    document.documentElement.style.setProperty(`--${pane}`, `${pixels}px`);
});
