"""The content of databases with older layouts."""

LAYOUT_6_RUNS = (
    ("r", "ada", b'{"text":"\\u0000 \\"forked_from\\":\\"other@1\\""}'),
    ("fork", "", b'{"text":"hi","forked_from":"r@3"}'),
    ("fork of it", "bob", b'{"forked_from":"fork@12"}'),
    ("other", "bob", b"{}"),
)
"""Run ids, owners and summaries."""
LAYOUT_6_ORIGINS = {"r": set[str](), "fork": {"owner:ada"}, "fork of it": {"owner:ada"}, "other": set[str]()}
