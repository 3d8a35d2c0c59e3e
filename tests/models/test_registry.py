"""Strings such as `provider:name` resolve to models; invalid ones raise a `SetupError`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from batonkit.errors import SetupError
from batonkit.models import Model, register_model, resolve_model
from batonkit.testing import ScriptedModel

Install: TypeAlias = Callable[[str, str], None]


def make_fake(name: str) -> Model:
    return ScriptedModel([], name=f"fake:{name}")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that installs a package with an entry point in the group `batonkit.models`."""

    def install(package: str, entry_point: str) -> None:
        site = tmp_path / package
        information = site / f"{package}-1.0.dist-info"
        information.mkdir(parents=True)
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(f"[batonkit.models]\n{entry_point}\n")
        (site / f"{package}.py").write_text(
            "from batonkit.testing import ScriptedModel\n"
            "def make(name):\n"
            "    return ScriptedModel([], name=f'installed:{name}')\n"
        )
        monkeypatch.setattr(sys, "path", [str(site), *sys.path])

    return install


def test_a_model_is_returned_unchanged() -> None:
    model = ScriptedModel([])
    assert resolve_model(model) is model


def test_a_registered_prefix_creates_one_model_per_string() -> None:
    register_model("fake", make_fake)
    assert resolve_model("fake:one").name == "fake:one"
    assert resolve_model("fake:one") is resolve_model("fake:one")
    assert resolve_model("fake:one") is not resolve_model("fake:two")


def test_only_the_first_colon_separates_prefix_and_name() -> None:
    register_model("fake", make_fake)
    assert resolve_model("fake:llama:8b").name == "fake:llama:8b"


def test_registering_again_replaces_cached_models() -> None:
    register_model("fake", make_fake)
    register_model("other", make_fake)
    old, other = resolve_model("fake:one"), resolve_model("other:one")
    register_model("fake", make_fake)
    assert resolve_model("fake:one") is not old
    assert resolve_model("other:one") is other


def test_an_installed_provider_is_found_by_its_entry_point(install: Install) -> None:
    install("provider_one", "one = provider_one:make")
    assert resolve_model("one:large").name == "installed:large"
    assert resolve_model("one:large") is resolve_model("one:large")


def test_registered_prefixes_take_precedence_over_entry_points(install: Install) -> None:
    install("provider_two", "two = provider_two:make")
    register_model("two", make_fake)
    assert resolve_model("two:large").name == "fake:large"


def test_an_unknown_provider_raises_with_suggestions(install: Install) -> None:
    install("provider_three", "installed = provider_three:make")
    register_model("registered", make_fake)
    with pytest.raises(SetupError) as raised:
        resolve_model("xyz:gpt-5", wanted_by="Desk")
    message = str(raised.value)
    assert message.startswith("the model `xyz:gpt-5` for `Desk` needs the provider `xyz`, which is not installed; ")
    assert "`installed`" in message
    assert "`registered`" in message
    assert "batonkit.models.register_model('xyz', factory)" in message
    assert message.endswith("an entry point `xyz` in the group `batonkit.models`")


@pytest.mark.parametrize("misspelt", ["opeani", "openia", "OpenAI"])
def test_a_misspelt_provider_raises_with_the_nearest_one_only(misspelt: str) -> None:
    with pytest.raises(SetupError) as raised:
        resolve_model(f"{misspelt}:gpt-5")
    assert str(raised.value) == (
        f"the model `{misspelt}:gpt-5` needs the provider `{misspelt}`, which is not installed; "
        "did you mean `openai:gpt-5`?"
    )


@pytest.mark.parametrize("text", ["gpt-5", ":gpt-5", ""])
def test_a_string_without_provider_or_name_raises(text: str) -> None:
    register_model("fake", make_fake)
    with pytest.raises(SetupError) as raised:
        resolve_model(text)
    message = str(raised.value)
    assert message.startswith(f"the model `{text}` has no provider prefix; write it as `provider:name`, with one of: `")
    assert "`fake`" in message


@pytest.mark.parametrize("text", ["fake", "fake:"])
def test_a_provider_without_a_model_raises(text: str) -> None:
    register_model("fake", make_fake)
    with pytest.raises(SetupError) as raised:
        resolve_model(text, wanted_by="Desk")
    assert str(raised.value) == (
        f"the model `{text}` for `Desk` names a provider but no model of it; "
        "write it as `fake:name`, with the provider's name for the model"
    )


def test_a_provider_that_cannot_be_imported_names_the_missing_module(install: Install) -> None:
    install("provider_four", "four = no_such_package:make [sdk]")
    with pytest.raises(SetupError) as raised:
        resolve_model("four:large", wanted_by="Desk")
    assert str(raised.value) == (
        "the provider `four` for `Desk` needs `no_such_package`, which is not installed: "
        "pip install 'provider_four[sdk]'"
    )
    assert isinstance(raised.value.__cause__, ImportError)


def test_two_packages_with_the_same_prefix_raise(install: Install) -> None:
    install("provider_five", "five = provider_five:make")
    install("provider_six", "five = provider_six:make")
    with pytest.raises(SetupError, match="provide `five`: `provider_five:make`, `provider_six:make`"):
        resolve_model("five:large")
    register_model("five", make_fake)
    assert resolve_model("five:large").name == "fake:large"


def test_no_model_raises_with_the_ways_to_set_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BATON_MODEL", raising=False)
    with pytest.raises(
        SetupError, match=r"no model was given for `Desk`; pass a Model or a string .* or set BATON_MODEL"
    ):
        resolve_model(None, wanted_by="Desk")


def test_the_default_model_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    register_model("fake", make_fake)
    monkeypatch.setenv("BATON_MODEL", "fake:default")
    assert resolve_model(None).name == "fake:default"
    monkeypatch.setenv("BATON_MODEL", "")
    with pytest.raises(SetupError, match="no model was given"):
        resolve_model(None)


@pytest.mark.parametrize(("given", "shown"), [(7, "an int"), (ScriptedModel, "the class ScriptedModel itself")])
def test_an_object_that_is_not_a_model_raises(given: object, shown: str) -> None:
    with pytest.raises(SetupError, match=f"is {shown}; a model is an object with `name` and `respond"):
        resolve_model(given)  # pyright: ignore[reportArgumentType]


def test_a_factory_that_returns_no_model_raises() -> None:
    register_model("fake", lambda name: None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SetupError, match="the provider `fake` returned None for `fake:one`"):
        resolve_model("fake:one")


@pytest.mark.parametrize("prefix", ["", "a:b"])
def test_an_invalid_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(SetupError, match="is not a valid provider prefix"):
        register_model(prefix, make_fake)
