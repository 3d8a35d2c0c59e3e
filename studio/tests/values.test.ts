import { describe, expect, test } from "vitest";
import { valuesAt } from "../src/log/values";
import { event } from "./recorded-log";

describe("values", () => {
  const log = [
    event("RunStarted", "run", 0, "", "", { values: { city: "Oslo", draft: 1 } }),
    event("AgentStarted", "1/start", 0, "Desk"),
    event("ToolReturned", "1/m1.0", 1, "Desk", "1", {
      value_changes: { written: { city: "Bergen" }, removed: ["draft", "unknown"] },
    }),
    event("InterruptAnswered", "1/m2.0/ask1!", 2, "Desk", "1", { values: { paid: true } }),
  ];
  test("are those of the start and the changes until an event", () => {
    const at = (index: number) => Object.fromEntries(valuesAt(log, index).values);
    expect(at(1)).toEqual({ city: "Oslo", draft: 1 });
    expect(at(2)).toEqual({ city: "Bergen" });
    expect(at(3)).toEqual({ city: "Bergen", paid: true });
  });
  test("say what the event itself changed", () => {
    expect(valuesAt(log, 2)).toMatchObject({ set: new Set(["city"]), deleted: ["draft"] });
    expect(valuesAt(log, 1)).toMatchObject({ set: new Set(), deleted: [] });
    expect(valuesAt(log, 3).set).toEqual(new Set(["paid"]));
  });
});
