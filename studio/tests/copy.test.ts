import { describe, expect, test } from "vitest";
import { log } from "./recorded-log";
import { curlOf } from "../src/run/copy";

describe("copy", () => {
  test("makes a curl command that the shell cannot break out of", () => {
    const said = [{ ...log[0]!, input: [{ role: "user", content: "it's" }] }];
    expect(curlOf(said)).toContain(`-d '{"input":"it'\\''s"}'`);
  });
});
