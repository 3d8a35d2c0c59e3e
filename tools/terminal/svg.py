"""Render recorded terminal screens as one animated SVG without scripts."""

from html import escape
from typing import TypeAlias

Run: TypeAlias = tuple[str, str, bool]
"""Text, the name of its colour, and whether it is bold."""
Row: TypeAlias = list[Run]
Frame: TypeAlias = tuple[float, list[Row]]
"""The seconds that a screen is shown, and its rows."""

WIDTH, HEIGHT = 8.4, 19
"""The size of a character cell."""
MARGIN, BAR = 16, 34
COLORS = {
    "default": "#d6deeb", "black": "#7f8ea3", "red": "#ff7b72", "green": "#7ee787", "brown": "#f2cc60",
    "blue": "#79c0ff", "magenta": "#d2a8ff", "cyan": "#56d4dd", "white": "#ffffff",
}  # fmt: skip
STYLE = """
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; white-space: pre; }
.b { font-weight: 700; }
.s { visibility: hidden; animation: show TOTALs step-end infinite; }
@media (prefers-reduced-motion: reduce) { .s { animation: none; } .s:last-of-type { visibility: visible; } }
"""


def render(frames: list[Frame], columns: int, *, split: int) -> str:
    """Render frames that repeat for ever.

    Args:
        frames: The screens; both terminals' rows in one list.
        columns: The width in characters.
        split: How many rows belong to the upper terminal.

    Returns:
        The SVG document.
    """
    total = sum(seconds for seconds, _ in frames)
    lower_top = BAR + split * HEIGHT + 2 * MARGIN
    width = columns * WIDTH + 2 * MARGIN
    height = lower_top + (len(frames[0][1]) - split) * HEIGHT + MARGIN
    symbols: dict[str, str] = {}
    groups: list[str] = []
    rules: list[str] = []
    elapsed = 0.0
    for number, (seconds, rows) in enumerate(frames):
        uses: list[str] = []
        for index, row in enumerate(rows):
            if drawn := _draw(row):
                name = symbols.setdefault(drawn, f"r{len(symbols)}")
                top = BAR + MARGIN + index * HEIGHT if index < split else lower_top + (index - split) * HEIGHT
                uses.append(f'<use href="#{name}" y="{top + HEIGHT - 5}"/>')
        start, end = 100 * elapsed / total, 100 * (elapsed + seconds) / total
        elapsed += seconds
        hidden = "" if number == 0 else "0%{visibility:hidden}"
        after = "" if number == len(frames) - 1 else f"{end:.3f}%{{visibility:hidden}}"
        rules.append(f"@keyframes f{number}{{{hidden}{start:.3f}%{{visibility:visible}}{after}}}")
        groups.append(f'<g class="s" style="animation-name:f{number}">{"".join(uses)}</g>')
    definitions = "".join(f'<g id="{name}">{drawn}</g>' for drawn, name in symbols.items())
    dots = "".join(f'<circle cx="{20 + 18 * n}" cy="17" r="5.5" fill="{c}"/>' for n, c in enumerate(_DOTS))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img">'
        "<title>A chat hands over, asks for approval, is killed with kill -9, and is resumed</title>"
        f"<style>{STYLE.replace('TOTAL', f'{total:.2f}')}{''.join(rules)}</style>"
        f'<rect width="100%" height="100%" rx="10" fill="#0b1220" stroke="#26334d"/>{dots}'
        f'<path d="M0 {lower_top - MARGIN / 2}h{width:.0f}" stroke="#26334d"/>'
        f"<defs>{definitions}</defs>{''.join(groups)}</svg>\n"
    )


_DOTS = ("#ff5f57", "#febc2e", "#28c840")


def _draw(row: Row) -> str:
    """Draw one row's runs at y = 0; the empty string for a blank row."""
    drawn: list[str] = []
    column = 0
    for text, color, bold in row:
        stripped = text.strip()
        if stripped:
            x = MARGIN + (column + len(text) - len(text.lstrip())) * WIDTH
            weight = ' class="b"' if bold else ""
            drawn.append(
                f'<text x="{x:.1f}" textLength="{len(stripped) * WIDTH:.1f}" lengthAdjust="spacingAndGlyphs"'
                f'{weight} fill="{COLORS.get(color, COLORS["default"])}">{escape(stripped, quote=False)}</text>'
            )
        column += len(text)
    return "".join(drawn)
