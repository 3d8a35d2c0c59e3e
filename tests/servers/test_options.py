"""The options of the servers are declared once."""

import inspect

from tests.servers import ProviderServer, ServerOptions


def test_every_option_is_declared() -> None:
    options = [*inspect.signature(ProviderServer).parameters][1:]
    assert options == [*ServerOptions.__annotations__]
