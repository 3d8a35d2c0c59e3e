"""Studio: a local web page that shows which agent held control in a run, why it moved, and what each agent read.

May import serve and the layers below. The page is built from `studio/` at the root of the repository; its files are
in `assets`. Starlette is imported when an app is created.
"""

from .app import StudioApp, studio_app

__all__ = ["StudioApp", "studio_app"]
