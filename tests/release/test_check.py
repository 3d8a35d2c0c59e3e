"""The quick part of `make release-check`: what the wheel and the sdist contain."""

import pytest
from tests.release.check import LICENSES, ReleaseError, check_changelog, check_sdist, check_wheel, package_files


def test_a_wheel_without_studio_or_with_other_files_is_refused() -> None:
    names = package_files() | {f"batonkit-0.1.0.dist-info/licenses/{name}" for name in LICENSES}
    check_wheel([*names, "batonkit-0.1.0.dist-info/METADATA"])
    with pytest.raises(ReleaseError, match=r"the wheel lacks batonkit/serve/studio/assets/studio\.js$"):
        check_wheel(names - {"batonkit/serve/studio/assets/studio.js"})
    with pytest.raises(ReleaseError, match=r"not part of the package: tests/secret\.py"):
        check_wheel([*names, "tests/secret.py"])
    with pytest.raises(ReleaseError, match=r"lacks the licence files LICENSE$"):
        check_wheel(names - {"batonkit-0.1.0.dist-info/licenses/LICENSE"})


@pytest.mark.parametrize("lost", ["LICENSE", "src/batonkit/py.typed", "src/batonkit/stores/sqlite/schema.sql"])
def test_an_sdist_without_a_licence_or_a_file_of_the_package_is_refused(lost: str) -> None:
    names = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} | {f"src/{name}" for name in package_files()}
    check_sdist([f"batonkit-0.1.0/{name}" for name in names])
    with pytest.raises(ReleaseError, match=f"the sdist lacks {lost}"):
        check_sdist([f"batonkit-0.1.0/{name}" for name in names - {lost}])


def test_the_changelog_must_have_the_version() -> None:
    with pytest.raises(ReleaseError, match=r"has no section \[9\.9\.9\]"):
        check_changelog("9.9.9")
