"""AI SDK: serve a team to `useChat`, as version 1 of the UI message stream.

May import serve.http, runs and the layers below; Starlette is imported when an app is created.
"""

from .app import ai_sdk_app

__all__ = ["ai_sdk_app"]
