"""Settings of a model: what is set more closely to the call counts."""

from baton.models import ModelSettings


def test_settings_are_overridden_only_by_what_the_other_sets() -> None:
    general = ModelSettings(temperature=0.2, max_tokens=100, parallel_tool_calls=True)
    special = ModelSettings(temperature=0.0, parallel_tool_calls=False, seed=7)
    assert general.merge(special) == ModelSettings(temperature=0.0, max_tokens=100, parallel_tool_calls=False, seed=7)
    assert general.merge(None) is general
