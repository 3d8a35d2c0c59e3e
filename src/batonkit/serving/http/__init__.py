"""Parts shared by all HTTP apps: authentication, request checks, error responses and server-sent events.

May import runner and the layers below. Only `auth` and `app` can be imported without Starlette.
"""
