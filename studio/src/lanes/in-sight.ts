/** The part of a run that is in sight. */

/** The part of a list, sorted by its start, that can be in sight; `reach` is the width of its widest item. */
export function inSight<T>(
  items: T[],
  from: (item: T) => number,
  reach: number,
  left: number,
  right: number,
): T[] {
  const first = (limit: number): number => {
    let low = 0;
    let high = items.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (from(items[middle]!) < limit) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  return items.slice(first(left - reach), first(right));
}
