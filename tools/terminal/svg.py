"""Render recorded terminal screens as SVG without scripts: the whole session animated, or one screen."""

from html import escape
from typing import TypeAlias

Run: TypeAlias = tuple[str, str, bool]
"""Text, the name of its colour, and whether it is bold."""
Row: TypeAlias = list[Run]
Frame: TypeAlias = tuple[float, list[Row]]
"""The seconds that a screen is shown, and its rows."""

WIDTH, HEIGHT = 8.4, 19
"""The size of a character cell."""
MARGIN, BAR = 16, 26
COLORS = {
    "default": "#d6deeb", "black": "#7f8ea3", "red": "#ff7b72", "green": "#7ee787", "brown": "#f2cc60",
    "blue": "#79c0ff", "magenta": "#d2a8ff", "cyan": "#56d4dd", "white": "#ffffff",
}  # fmt: skip
TITLE = "A chat hands over, asks for approval, is killed with kill -9, and is resumed"
STYLE = """
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; white-space: pre; }
.b { font-weight: 700; }
"""
ANIMATION = """
.s { visibility: hidden; animation: show TOTALs step-end infinite; }
.s:last-of-type { visibility: visible; }
@media (prefers-reduced-motion: reduce) { .s { animation: none; } }
"""
"""Where animations do not run, the last screen is shown."""


class Window:
    """The window around two terminals, one above the other."""

    def __init__(self, columns: int, rows: int, split: int) -> None:
        self.split = split
        self.lower_top = BAR + split * HEIGHT + 2 * MARGIN
        self.width = columns * WIDTH + 2 * MARGIN
        self.height = self.lower_top + (rows - split) * HEIGHT + MARGIN

    def baseline(self, index: int) -> int:
        """Return where the text of a row stands."""
        top = BAR + MARGIN + index * HEIGHT
        if index >= self.split:
            top = self.lower_top + (index - self.split) * HEIGHT
        return top + HEIGHT - 5

    def draw(self, style: str, content: str) -> str:
        """Return the document: the window with this content."""
        dots = "".join(f'<circle cx="{20 + 18 * n}" cy="19" r="5.5" fill="{c}"/>' for n, c in enumerate(_DOTS))
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:.0f} {self.height:.0f}" role="img">'
            f"<title>{TITLE}</title><style>{style}</style>"
            f'<rect width="100%" height="100%" rx="10" fill="#0b1220" stroke="#26334d"/>{dots}'
            f'<path d="M0 {self.lower_top - MARGIN / 2}h{self.width:.0f}" stroke="#26334d"/>'
            f"{content}</svg>\n"
        )


def render(frames: list[Frame], columns: int, *, split: int) -> str:
    """Render frames that repeat for ever.

    Args:
        frames: The screens; both terminals' rows in one list.
        columns: The width in characters.
        split: How many rows belong to the upper terminal.

    Returns:
        The SVG document.
    """
    window = Window(columns, len(frames[0][1]), split)
    total = sum(seconds for seconds, _ in frames)
    symbols: dict[str, str] = {}
    groups: list[str] = []
    rules: list[str] = []
    elapsed = 0.0
    for number, (seconds, rows) in enumerate(frames):
        uses: list[str] = []
        for index, row in enumerate(rows):
            if drawn := _draw(row):
                name = symbols.setdefault(drawn, f"r{len(symbols)}")
                uses.append(f'<use href="#{name}" y="{window.baseline(index)}"/>')
        start, end = 100 * elapsed / total, 100 * (elapsed + seconds) / total
        elapsed += seconds
        hidden = "" if number == 0 else "0%{visibility:hidden}"
        after = "" if number == len(frames) - 1 else f"{end:.3f}%{{visibility:hidden}}"
        rules.append(f"@keyframes f{number}{{{hidden}{start:.3f}%{{visibility:visible}}{after}}}")
        groups.append(f'<g class="s" style="animation-name:f{number}">{"".join(uses)}</g>')
    definitions = "".join(f'<g id="{name}">{drawn}</g>' for drawn, name in symbols.items())
    style = f"{STYLE}{ANIMATION.replace('TOTAL', f'{total:.2f}')}{''.join(rules)}"
    return window.draw(style, f"<defs>{definitions}</defs>{''.join(groups)}")


def render_still(rows: list[Row], columns: int, *, split: int) -> str:
    """Render one screen; the parameters are those of `render`."""
    window = Window(columns, len(rows), split)
    drawn = (f'<g transform="translate(0 {window.baseline(index)})">{_draw(row)}</g>' for index, row in enumerate(rows))
    return window.draw(STYLE, "".join(drawn))


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
