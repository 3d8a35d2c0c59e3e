"""The quick part of `make release-check`: what the wheel contains, and the quickstart of the README."""

import pytest
from tests.release.check import (
    ROOT,
    ReleaseError,
    check_changelog,
    check_sdist,
    check_wheel,
    package_files,
    quickstart,
)


def test_a_wheel_without_studio_or_with_other_files_is_refused() -> None:
    names = package_files()
    check_wheel([*names, "batonkit-0.1.0.dist-info/METADATA"])
    with pytest.raises(ReleaseError, match=r"the wheel lacks batonkit/serve/studio/assets/studio\.js$"):
        check_wheel(names - {"batonkit/serve/studio/assets/studio.js"})
    with pytest.raises(ReleaseError, match=r"not part of the package: tests/secret\.py"):
        check_wheel([*names, "tests/secret.py"])


@pytest.mark.parametrize("lost", ["LICENSE", "src/batonkit/py.typed", "src/batonkit/stores/sqlite/schema.sql"])
def test_an_sdist_without_a_licence_or_a_file_of_the_package_is_refused(lost: str) -> None:
    names = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} | {f"src/{name}" for name in package_files()}
    check_sdist([f"batonkit-0.1.0/{name}" for name in names])
    with pytest.raises(ReleaseError, match=f"the sdist lacks {lost}"):
        check_sdist([f"batonkit-0.1.0/{name}" for name in names - {lost}])


def test_the_changelog_must_have_the_version() -> None:
    with pytest.raises(ReleaseError, match=r"has no section \[9\.9\.9\]"):
        check_changelog("9.9.9")


def test_the_quickstart_is_found() -> None:
    code = quickstart((ROOT / "README.md").read_text(encoding="utf-8"))
    assert "from batonkit import" in code
    assert "Runner(" in code
    compile(code, "README.md", "exec")


def test_only_the_section_of_the_quickstart_is_run() -> None:
    page = "# A\n## Quick start\n```python\nx = 1\n```\n```python no-run\n!\n```\n## Next\n```python\ny = 2\n```\n"
    assert quickstart(page) == "x = 1\n"
    with pytest.raises(ReleaseError, match="no section called quickstart"):
        quickstart("# A\n```python\nx = 1\n```\n")
