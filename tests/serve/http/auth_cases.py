"""Cases for each auth scheme: accepted and refused headers, and its description in the card."""

import base64
from time import time
from typing import Any

import jwt

from batonkit.serve.http.auth import APIKeyAuth, Auth, BasicAuth, BearerAuth, JWTAuth, MutualTLSAuth

KEY = "k" * 32


def _signed(claims: dict[str, Any], key: str = KEY, algorithm: str = "HS256") -> str:
    return jwt.encode(claims, key, algorithm=algorithm)


def _basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


async def _async_owner(token: str) -> str | None:
    return "ann" if token == "t1" else None


GOOD = {"sub": "ann", "exp": int(time()) + 86_400, "aud": "us"}
CASES: list[tuple[str, Auth, dict[str, str], list[dict[str, str]], dict[str, Any]]] = [
    (
        "bearer",
        BearerAuth({"t1": "ann"}),
        {"Authorization": "Bearer t1"},
        [{}, {"Authorization": "Bearer t2"}, {"Authorization": "Bearer"}, {"Authorization": "Basic t1"}],
        {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
    ),
    (
        "bearer by function",
        BearerAuth(_async_owner),
        {"Authorization": "bearer t1"},
        [{"Authorization": "Bearer t2"}],
        {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
    ),
    (
        "jwt",
        JWTAuth(KEY, algorithms=["HS256"], audience="us"),
        {"Authorization": f"Bearer {_signed(GOOD)}"},
        [
            {"Authorization": f"Bearer {_signed(GOOD, 'x' * 32)}"},
            {"Authorization": f"Bearer {_signed(GOOD | {'exp': 1})}"},
            {"Authorization": f"Bearer {_signed(GOOD | {'aud': 'them'})}"},
            {"Authorization": f"Bearer {_signed({'sub': 'ann', 'aud': 'us'})}"},
            {"Authorization": f"Bearer {_signed(GOOD, '', 'none')}"},
            {"Authorization": "Bearer nonsense"},
        ],
        {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}},
    ),
    (
        "key in a header",
        APIKeyAuth({"k1": "ann"}),
        {"X-API-Key": "k1"},
        [{}, {"X-API-Key": "k2"}],
        {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
    ),
    (
        "key in a cookie",
        APIKeyAuth({"k1": "ann"}, location="cookie", key_name="key"),
        {"Cookie": "key=k1"},
        [{}, {"Cookie": "key=k2"}],
        {"apiKeySecurityScheme": {"location": "cookie", "name": "key"}},
    ),
    (
        "basic",
        BasicAuth({"ann": "secret"}),
        {"Authorization": _basic("ann:secret")},
        [
            {"Authorization": _basic("ann:wrong")},
            {"Authorization": _basic("bob:secret")},
            {"Authorization": "Basic ???"},
            {"Authorization": _basic("ann")},
        ],
        {"httpAuthSecurityScheme": {"scheme": "Basic"}},
    ),
    (
        "mtls",
        MutualTLSAuth(),
        {"X-Client-Cert-Subject": "ann"},
        [{}],
        {"mtlsSecurityScheme": {"description": "A client certificate."}},
    ),
]
