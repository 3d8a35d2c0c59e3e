"""What a model needs that is not installed with Baton itself."""

from importlib.util import find_spec

from ..errors import SetupError


def require_extra(*modules: str, model: str, what: str, extra: str) -> None:
    """Raise a SetupError that says what to install, unless all these modules are there; the parent before the child."""
    if not all(find_spec(module) is not None for module in modules):
        raise SetupError(f"the model `{model}` needs {what}; install it with: pip install 'baton-adk[{extra}]'")
