import { describe, expect, test } from "vitest";
import { nextOrder, sortRows, type Column, type Order } from "../src/usage/sorting";

type Row = { name: string; cost: number };
const columns: [Column<Row>, Column<Row>] = [
  { name: "agent", value: (row) => row.name },
  { name: "cost", value: (row) => row.cost },
];
const rows: Row[] = [
  { name: "b", cost: 2 },
  { name: "a10", cost: 30 },
  { name: "a9", cost: 4 },
];
const names = (order: Order | null): string[] =>
  sortRows(rows, columns, order).map((row) => row.name);

describe("sorting", () => {
  test("keeps the order of the server at first", () =>
    expect(names(null)).toEqual(["b", "a10", "a9"]));
  test("begins with the largest number and the first name, and turns around", () => {
    const byCost = nextOrder(null, columns[1], rows);
    expect(names(byCost)).toEqual(["a10", "a9", "b"]);
    expect(names(nextOrder(byCost, columns[1], rows))).toEqual(["b", "a9", "a10"]);
    expect(names(nextOrder(byCost, columns[0], rows))).toEqual(["a9", "a10", "b"]);
  });
});
