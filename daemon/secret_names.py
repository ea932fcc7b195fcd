"""Names of secrets, whose values are masked in logs and left out of configuration listings."""

import re

_SECRET = re.compile(r"secret|password|passwd|signature|security_?token|credential", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether what stands behind `name` is a secret, as its words say."""
    return _SECRET.search(name) is not None
