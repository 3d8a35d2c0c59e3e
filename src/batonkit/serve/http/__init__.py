"""Parts shared by all HTTP apps: authentication, request checks, errors, questions, message parts and event streams.

May import runs and the layers below. Only `auth` and `application` can be imported without Starlette.
"""
