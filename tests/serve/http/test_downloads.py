"""The header of downloads."""

import pytest

from batonkit.serve.http.downloads import attachment_headers


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("r1.html", 'attachment; filename="r1.html"'),
        ("ann:r1.html", 'attachment; filename="ann-r1.html"'),
        ("ann%40x.org:r1.json", 'attachment; filename="ann-40x.org-r1.json"'),
        ('a"; x="b.html', "attachment; filename=\"a---x=-b.html\"; filename*=UTF-8''a-%3B%20x%3D-b.html"),
        (
            "a\r\nSet-Cookie: b.html",
            "attachment; filename=\"a--Set-Cookie--b.html\"; filename*=UTF-8''a--Set-Cookie-%20b.html",
        ),
        ("../../a\\b.html", 'attachment; filename="..-..-a-b.html"'),
        ("übung 王.html", "attachment; filename=\"-bung--.html\"; filename*=UTF-8''%C3%BCbung%20%E7%8E%8B.html"),
    ],
)
def test_the_name_of_a_download_is_escaped(name: str, header: str) -> None:
    assert attachment_headers(name) == {"Content-Disposition": header}
