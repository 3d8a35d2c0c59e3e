"""An OpenAI-compatible server: every program that can talk to OpenAI can talk to a team.

May import serve.http, runs and the layers below; Starlette is imported when an app is created.
"""

from .app import openai_app

__all__ = ["openai_app"]
