/** The width of text, estimated: no font is measured, so that placing is pure and fast. */

export const GLYPH = 0.56;

/** An upper estimate of a text's width: no font is measured, so that placing is pure and fast. */
export const textWidth = (text: string, size = 11): number => {
  let units = 0;
  for (const char of text)
    units +=
      char.charCodeAt(0) > 0x2e80
        ? 1.05
        : /[A-Z@%MWmw→]/.test(char)
          ? 0.72
          : /[ilj.,:;'|! ]/.test(char)
            ? 0.32
            : GLYPH;
  return units * size;
};

export function shorten(text: string, room: number, size = 11): string {
  if (textWidth(text, size) <= room) return text;
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (textWidth(text.slice(0, middle), size) + size * 0.8 <= room) low = middle;
    else high = middle - 1;
  }
  return low < 3 ? "" : `${text.slice(0, low).trimEnd()}…`;
}
