"""Files of this machine: secrets that other accounts can read."""

from __future__ import annotations

import os
import shlex

from triomq.admin import contexts
from triomq.admin.diagnosis import CRITICAL, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from triomq.admin.run import Run


def examine_files(_: Run) -> Iterator[Finding]:
    paths = [contexts.path()]
    home = os.environ.get("ROCKETMQ_HOME")
    if home:
        paths += [os.path.join(home, "conf", name) for name in ("tools.yml", "plain_acl.yml")]
    for path in paths:
        try:
            mode = os.stat(path).st_mode
        except OSError:
            continue
        if mode & 0o044:
            yield Finding(
                CRITICAL,
                "secrets-readable",
                path,
                f"every account of this machine can read the secrets in {path}",
                "an account that reads them can sign requests",
                f"`chmod 600 {shlex.quote(path)}`",
            )
