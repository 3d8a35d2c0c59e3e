import { beforeAll, expect, test, vi } from "vitest";

const address = { hash: "#r1@1" };
vi.stubGlobal("location", address);

let state: typeof import("../src/state/place");

beforeAll(async () => {
  state = await import("../src/state/place");
});

test("a place that is gone to is the place at once, before the browser tells of the new address", () => {
  state.go("r1", 2);
  expect(state.place.value).toEqual({ view: "run", run: "r1", number: 2 });
  expect(address.hash).toBe("r1@2");
});

test("the address that the browser tells of later changes nothing", () => {
  const before = state.place.value;
  state.readPlace();
  expect(state.place.value).toBe(before);
});
