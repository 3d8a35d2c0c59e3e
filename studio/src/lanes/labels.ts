/** Labels that never overlap: each gets the room that is free in its row, or is left out. Pure. */
import { shorten, textWidth } from "../text-width";

/** Labels that never overlap: each gets the room that is free in its row, or is left out. Pure. */
export interface Label {
  row: string;
  x: number;
  text: string;
  size?: number;
  align?: "start" | "end";
  rank?: number;
  least?: string;
}

export type Placed<T extends Label> = T & { shown: string; width: number };

/** Place labels by rank, then from left to right. `taken` has the intervals of each row that are drawn over. */
export function placeLabels<T extends Label>(
  labels: T[],
  taken: Map<string, [number, number][]>,
  edge: [number, number],
  gap = 8,
): Placed<T>[] {
  const rows = new Map<string, [number, number][]>();
  for (const [row, intervals] of taken) rows.set(row, [...intervals]);
  const out: Placed<T>[] = [];
  for (const label of labels.toSorted((a, b) => (a.rank ?? 0) - (b.rank ?? 0) || a.x - b.x)) {
    const size = label.size ?? 11;
    const used = rows.get(label.row) ?? [];
    const end = label.align === "end";
    let [left, right] = end ? [edge[0], label.x] : [label.x, edge[1]];
    // A label that begins outside would be cut off.
    let blocked = label.x < edge[0] || label.x > edge[1];
    for (const [from, to] of used) {
      if (end) {
        if (from < label.x && to > label.x - 1) blocked = true;
        if (to <= label.x) left = Math.max(left, to + gap);
      } else {
        if (from < label.x + 1 && to > label.x) blocked = true;
        if (from >= label.x) right = Math.min(right, from - gap);
      }
    }
    if (blocked || right - left < Math.max(18, label.least ? textWidth(label.least, size) : 0))
      continue;
    const shown = shorten(label.text, right - left, size);
    if (!shown) continue;
    const width = textWidth(shown, size);
    used.push(end ? [label.x - width, label.x] : [label.x, label.x + width]);
    rows.set(label.row, used);
    out.push({ ...label, shown, width });
  }
  return out;
}
