"""The header of responses that browsers save as a file."""

import re
from urllib.parse import quote

_RESERVED = re.compile(r'[<>:"/\\|?*%]')
"""Characters that some file systems or browsers do not accept in the name of a file."""
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._~@+=-]")


def attachment_headers(name: str) -> dict[str, str]:
    """Return the header that names the file of a download (RFC 6266)."""
    printable = "".join([each if each.isprintable() else "-" for each in _RESERVED.sub("-", name)])
    plain = _NOT_PLAIN.sub("-", printable)
    header = f'attachment; filename="{plain}"'
    if plain != printable:
        header += f"; filename*=UTF-8''{quote(printable, safe='')}"
    return {"Content-Disposition": header}
