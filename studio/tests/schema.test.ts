import { describe, expect, test } from "vitest";
import { problemsOf, typeText, type Schema } from "../src/schema/schema";

describe("schema", () => {
  test("is described in a few words", () => {
    const root: Schema = { $defs: { Colour: { enum: ["red", "blue"] } } };
    const text = (schema: Schema): string => typeText(schema, root);
    expect(text({ type: "integer", minimum: 1, maximum: 3 })).toBe("integer from 1 to 3");
    expect(text({ $ref: "#/$defs/Colour" })).toBe('"red" or "blue"');
    expect(text({ type: "array", items: { type: "string" } })).toBe("list of string");
    expect(text({ anyOf: [{ type: "number" }, { type: "null" }] })).toBe("number");
    expect(text({})).toBe("any JSON");
  });
  test("leads what the server says to the field", () => {
    const message = "the answer to `1/ask1` does not fit its schema: stars: 9 is too much";
    expect(problemsOf(message, ["star", "stars"])).toEqual({ stars: "9 is too much" });
    expect(problemsOf(message, ["comment"])).toEqual({ "": "stars: 9 is too much" });
    expect(problemsOf("the run is running", ["stars"])).toEqual({ "": "the run is running" });
  });
});
