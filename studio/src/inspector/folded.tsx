/** A long list with its middle folded. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { count } from "../formats";

const HEAD = 8;

const TAIL = 32;

/** A long list with its middle folded, so that a request of thousands of messages stays cheap to show. */
export function Folded<T>({
  items,
  show,
}: {
  items: T[];
  show: (item: T, index: number) => ComponentChildren;
}) {
  const [more, setMore] = useState(0);
  const end = items.length - TAIL - more;
  if (items.length <= HEAD + TAIL || end <= HEAD) return <>{items.map(show)}</>;
  return (
    <>
      {items.slice(0, HEAD).map(show)}
      <button class="unfold" onClick={() => setMore(more + 60)}>
        {count(end - HEAD)} more messages, show 60
      </button>
      {items.slice(end).map((item, index) => show(item, end + index))}
    </>
  );
}
