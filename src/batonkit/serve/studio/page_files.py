"""The built files of the page, which the app serves and exports contain."""

from importlib.resources import files

ASSETS = {
    "studio.js": "text/javascript; charset=utf-8",
    "studio.css": "text/css; charset=utf-8",
    "inter.woff2": "font/woff2",
    "mono.woff2": "font/woff2",
}
"""The files of the page, besides `index.html`, and their types."""


def read_asset(name: str) -> bytes:
    """Return a built file of the page."""
    return files("batonkit.serve.studio").joinpath("assets", name).read_bytes()
