"""Draw the Mermaid diagrams of this folder as SVG files for both themes: `make pictures`.

The site shows the files, so that no page loads Mermaid. Each file names the hash of its source; a test compares them.
"""

import sys
from hashlib import sha256
from pathlib import Path

from tools.pages import open_page

FOLDER = Path(__file__).parent
PICTURES = FOLDER.parents[1] / "docs" / "images" / "diagrams"
COLORS = {
    "light": ("#e6f6f4", "#0f766e", "#10201f", "#51606f", "#ffffff"),
    "dark": ("#12302e", "#2dd4bf", "#e6f2f1", "#9fb0c0", "#0b0c0f"),
}
"""By theme: the fill, the border, the text, the lines and the page."""
DRAW = """async ([source, name, [fill, border, text, line, page]]) => {
    mermaid.initialize({
        startOnLoad: false, theme: "base", htmlLabels: false, flowchart: {htmlLabels: false},
        fontFamily: "system-ui, sans-serif",
        themeVariables: {
            primaryColor: fill, primaryBorderColor: border, primaryTextColor: text, textColor: text, lineColor: line,
            edgeLabelBackground: page, fontSize: "15px",
        },
    });
    return (await mermaid.render(name, source)).svg;
}"""


def source_hash(source: Path) -> str:
    """Return the hash that a picture carries of its source."""
    return sha256(source.read_bytes()).hexdigest()[:16]


def picture_of(source: Path, theme: str) -> Path:
    """Return where the picture of a diagram is."""
    return PICTURES / f"{source.stem}-{theme}.svg"


def draw(library: Path) -> None:
    """Draw all diagrams.

    Args:
        library: The file `mermaid.min.js`.
    """
    with open_page(1200, 900) as page:
        page.add_script_tag(path=library)
        for source in sorted(FOLDER.glob("*.mmd")):
            for theme, colors in COLORS.items():
                svg = page.evaluate(DRAW, [source.read_text(encoding="utf-8"), f"{source.stem}-{theme}", colors])
                comment = f"<!-- source: {source_hash(source)} -->\n"
                picture_of(source, theme).write_text(f"{svg}\n{comment}", encoding="utf-8")


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
