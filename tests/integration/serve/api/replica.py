"""A server in its own process, stopped by tests: `python -m tests.integration.serve.api.replica PORT FOLDER APP`."""

import sys
from pathlib import Path
from typing import Any

from tests.integration.serve.a2a.replica import team

from batonkit import Runner
from batonkit.cli.serve import make_app
from batonkit.serve import api_app, serve
from batonkit.serve.agui import agui_app


def app_for(name: str, runner: Runner) -> Any:
    """Create an app as a program would, or as `baton serve` does."""
    match name:
        case "api":
            return api_app(runner)
        case "agui":
            return agui_app(runner)
        case _:
            return make_app(runner, ["api", "agui", "a2a"])


if __name__ == "__main__":
    port, folder, name = sys.argv[1:]
    serve(app_for(name, team(Path(folder))), port=int(port), drain=0.2)
