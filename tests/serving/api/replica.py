"""A server in a process of its own: `python -m tests.serving.api.replica PORT FOLDER FACE`. Ended by tests."""

import sys
from pathlib import Path
from typing import Any

from tests.serving.a2a.replica import team

from baton import Runner
from baton.cli.serve import AppOptions, make_app
from baton.serving import api_app, serve
from baton.serving.agui import agui_app


def app_for(face: str, runner: Runner) -> Any:
    """An app as a program makes it, or as `baton serve` does."""
    match face:
        case "api":
            return api_app(runner)
        case "agui":
            return agui_app(runner)
        case _:
            return make_app(runner, ["api", "agui", "a2a"], AppOptions())


if __name__ == "__main__":
    port, folder, face = sys.argv[1:]
    serve(app_for(face, team(Path(folder))), port=int(port), timeout_graceful_shutdown=1)
