"""Parts shared by all HTTP apps: authentication, request checks, error responses and server-sent events.

May import runs and the layers below. Only `auth` and `application` can be imported without Starlette.
"""
