"""Names of secrets, whose values logs mask and configuration listings omit."""

import re

SECRET_KEYS = ("tls.server.keyPassword", "tls.client.keyPassword")
"""The configuration keys that are secrets. Each has a key that ends in File, and a variable."""

_SECRET = re.compile(r"secret|password|passwd|signature|security_?token|credential", re.IGNORECASE)


def variable_of(key: str) -> str:
    """Return the environment variable that may hold the secret: TRIOMQ_TLS_SERVER_KEYPASSWORD."""
    return "TRIOMQ_" + key.replace(".", "_").upper()


def is_secret(name: str) -> bool:
    """Return whether the value of `name` is a secret, judged by the words in the name."""
    return _SECRET.search(name) is not None
