"""Draw the card that social networks show beside a link to the site: `make pictures`."""

from pathlib import Path

from tools.pages import open_page

IMAGES = Path(__file__).parents[1] / "docs" / "images"
CARD = """
<body style="margin:0;background:#0b1220;color:#e6edf3;font-family:system-ui,'DejaVu Sans',sans-serif">
  <div style="padding:90px 100px">
    <div style="display:flex;align-items:center;gap:36px">
      <div style="width:150px;height:150px">LOGO</div>
      <div style="font-size:118px;font-weight:700;letter-spacing:-3px">Baton</div>
    </div>
    <div style="font-size:46px;line-height:1.35;margin-top:52px">Python agents that hand control to one another.</div>
    <div style="font-size:34px;line-height:1.45;margin-top:26px;color:#9fb0c0">
      Every run is a log: stream it, stop it for a person,<br>kill it, resume it, replay it in a test.
    </div>
  </div>
</body>
"""


def draw() -> None:
    """Write `docs/images/card.png`."""
    logo = (IMAGES / "logo.svg").read_text(encoding="utf-8")
    with open_page(1200, 630) as page:
        page.set_content(CARD.replace("LOGO", logo))
        page.screenshot(path=IMAGES / "card.png")


if __name__ == "__main__":
    draw()
