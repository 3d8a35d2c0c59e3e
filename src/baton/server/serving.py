"""Serving an app on a socket: on this machine only, unless callers must show who they are."""

from typing import Any

from ..errors import SetupError


def serve(app: Any, *, host: str = "127.0.0.1", port: int = 8000, is_guarded: bool = False, **options: Any) -> None:
    """Serve an ASGI app until the process is told to stop. `options` are uvicorn's.

    Unless `is_guarded`, which says that callers must show who they are or that anyone may call, only this machine can
    reach it: another `host` is refused.
    """
    try:
        import uvicorn
    except ImportError:
        raise SetupError("serve(…) needs uvicorn: pip install 'baton-adk[server]'") from None
    from ..adapters.http.door import is_local

    if not is_guarded and not is_local(host):
        raise SetupError(
            f"host `{host}` can be reached from other machines, and nobody is asked for a token; "
            "give the app a token, or say that anyone may call"
        )
    settings: dict[str, Any] = {"log_level": "warning", "timeout_graceful_shutdown": 5, **options}
    uvicorn.run(app, host=host, port=port, **settings)
