import { describe, expect, test } from "vitest";
import { placeLabels, type Label } from "../src/lanes/labels";
import { shorten, textWidth } from "../src/text-width";

describe("labels", () => {
  test("never overlap each other or what is drawn", () => {
    let seed = 7;
    const random = (): number => (seed = (seed * 16807) % 2147483647) / 2147483647;
    for (let round = 0; round < 200; round++) {
      const labels: Label[] = Array.from({ length: 40 }, () => ({
        row: `${Math.floor(random() * 3)}`,
        x: random() * 1000,
        text: "→ Refunds reason: refund".slice(0, 4 + random() * 20),
        align: random() < 0.3 ? "end" : "start",
      }));
      const taken = new Map<string, [number, number][]>([
        [
          "0",
          [
            [200, 260],
            [500, 520],
          ],
        ],
      ]);
      const boxes = placeLabels(labels, taken, [0, 1000]).map((each) => ({
        row: each.row,
        from: each.align === "end" ? each.x - each.width : each.x,
        to: each.align === "end" ? each.x : each.x + each.width,
      }));
      const isApart = (a: { from: number; to: number }, b: { from: number; to: number }): boolean =>
        a.to <= b.from || b.to <= a.from;
      const drawn = taken.get("0")!.map(([from, to]) => ({ row: "0", from, to }));
      const overlaps = boxes.flatMap((box) =>
        [...boxes, ...drawn].filter(
          (other) => other !== box && other.row === box.row && !isApart(box, other),
        ),
      );
      expect(overlaps).toEqual([]);
    }
  });
  test("are left out if they begin outside", () => {
    expect(
      placeLabels(
        [
          { row: "0", x: 40, text: "→ Refunds" },
          { row: "1", x: 140, text: "→ Refunds" },
        ],
        new Map(),
        [100, 500],
      ).map((each) => each.row),
    ).toEqual(["1"]);
  });
  test("are shortened to their room", () => {
    expect(shorten("short", 100)).toBe("short");
    expect(textWidth(shorten("a rather long label that does not fit", 80))).toBeLessThanOrEqual(80);
  });
});
