"""A script that steps aside for the model that BATON_MODEL names."""

import pytest

from batonkit import Agent, Runner, SetupError
from batonkit.models import register_model
from batonkit.testing import ScriptedModel, scripted_or_real


@pytest.mark.parametrize("said", [None, "", "scripted"])
def test_it_plays_its_script_where_no_model_is_named(monkeypatch: pytest.MonkeyPatch, said: str | None) -> None:
    monkeypatch.delenv("BATON_MODEL", raising=False)
    if said is not None:
        monkeypatch.setenv("BATON_MODEL", said)
    model = scripted_or_real(["Mine."])
    assert Runner(Agent("Desk"), model=model).run_sync("Hello").output == "Mine."
    assert model.notice == "scripted model: no language model is called"
    assert len(model.requests) == 1


def test_it_steps_aside_for_a_real_one_and_keeps_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ScriptedModel(["Theirs."], name="toy:real")
    register_model("toy", lambda name: real)
    monkeypatch.setenv("BATON_MODEL", "toy:real")
    model = scripted_or_real(["Mine."])
    result = Runner(Agent("Desk"), model=model).run_sync("Hello")
    assert result.output == "Theirs."
    assert list(result.usage.by_model) == ["toy:real"]
    assert model.requests == real.requests
    assert model.notice == "model: toy:real; it may behave differently from the script"


def test_a_model_that_is_not_there_is_explained_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATON_MODEL", "no-such-provider:x")
    with pytest.raises(SetupError, match="the model `no-such-provider:x` for `BATON_MODEL` needs the provider"):
        scripted_or_real(["Mine."])
