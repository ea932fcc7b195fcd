"""Names of secrets, whose values logs mask and configuration listings omit."""

import re

_SECRET = re.compile(r"secret|password|passwd|signature|security_?token|credential", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Return whether the value of `name` is a secret, judged by the words in the name."""
    return _SECRET.search(name) is not None
