"""Pictures and files as OpenAI takes them: an address, or the bytes in a data url."""

import re
from base64 import b64decode
from binascii import Error

from ....messages import File, Image
from .errors import wrong

_DATA_URL = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+);base64,(?P<data>.*)", re.DOTALL)
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def image(url: str, param: str, detail: str | None = None) -> Image:
    """The picture of an image part."""
    if url.startswith(("https://", "http://")):
        return Image(url=url, detail=detail)
    media_type, data = inline(url, param)
    if media_type not in _PICTURES:
        message = f"You uploaded an unsupported image. Please make sure your image has one of: {', '.join(_PICTURES)}."
        raise wrong(message, param=param, code="invalid_image_format")
    return Image(data=data, media_type=media_type, detail=detail)


def file(data: str | None, param: str, *, name: str | None, url: str | None = None) -> File:
    """The document of a file part."""
    if url is not None:
        return File(url=url, name=name)
    if data is None:
        raise wrong(f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")
    media_type, content = inline(data, param)
    return File(data=content, media_type=media_type, name=name)


def inline(url: str, param: str) -> tuple[str, bytes]:
    """Type and bytes of a data url."""
    found = _DATA_URL.fullmatch(url)
    if found is None:
        message = (
            f"Invalid '{param}'. Expected a base64-encoded data URL or a valid URL, but got a value without a scheme."
        )
        raise wrong(message, param=param, code="invalid_value")
    return found["type"], base64(found["data"], param)


def base64(text: str, param: str) -> bytes:
    """The bytes of a base64 text."""
    try:
        return b64decode(text, validate=True)
    except Error:
        raise wrong(
            f"Invalid '{param}'. Expected a base64-encoded value.", param=param, code="invalid_base64"
        ) from None
