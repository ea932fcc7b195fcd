"""Names of secrets, whose values are masked in logs and left out of configuration listings."""

import re

_SECRET = re.compile(r"secret|password|passwd|signature|security_?token|credential", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether the value of `name` is a secret, judged by the words in the name."""
    return _SECRET.search(name) is not None
