"""The run of a command: its options, the session and the output."""

from __future__ import annotations

import os
import time

from triomq.admin.errors import AdminError, PartlyDone, UsageError
from triomq.admin.java_text import parse_time
from triomq.admin.output import Output
from triomq.admin.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any


class ShowHelp(Exception):
    """A required option is missing, so the help is shown, as RocketMQ does."""


class PlanEnds(Exception):
    """A dry run ends where the command would pause before its next round."""


class Run:
    """`exit_status` is that of a command that succeeds: a check sets it. In a dry run `planned` receives what the
    command would do to files.
    """

    def __init__(
        self,
        session: Session,
        options: dict[str, str],
        out: Output,
        planned: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.session = session
        self.out = out
        self._options = options
        self._planned = planned
        self._failures: list[str] = []
        self.exit_status = 0
        self.has_consent = False  # --yes

    @property
    def is_plan(self) -> bool:
        """Whether nothing is to be changed, only shown."""
        return self._planned is not None

    def has(self, letter: str) -> bool:
        return letter in self._options

    def get(self, letter: str, default: str = "") -> str:
        return self._options.get(letter, default).strip()

    def raw(self, name: str) -> str:
        """Return a value with its blanks."""
        return self._options[name]

    def number(self, letter: str, default: int) -> int:
        text = self.get(letter)
        if not text:
            return default
        try:
            return int(text)
        except ValueError:
            raise UsageError(f"{_shown(letter)} must be a whole number, not {text!r}") from None

    def flag(self, letter: str, default: bool = False) -> bool:
        """Return an option with the value true or false."""
        text = self.get(letter).lower()
        return default if not text else text == "true"

    def every(self, name: str) -> list[str]:
        """Return the values of an option that may be repeated."""
        return self._options[name].split("\0") if name in self._options else []

    def decimal(self, name: str, default: float) -> float:
        text = self.get(name)
        if not text:
            return default
        try:
            return float(text)
        except ValueError:
            raise UsageError(f"{_shown(name)} must be a number, not {text!r}") from None

    def time(self, letter: str, default: int) -> int:
        """Return the milliseconds of an option that is a time."""
        text = self.get(letter)
        if not text:
            return default
        try:
            return parse_time(text)
        except ValueError as error:
            raise UsageError(f"{_shown(letter)}: {error}") from None

    # -- effects other than requests ---------------------------------------------------------------------------------

    def write_file(self, path: str, data: bytes) -> None:
        """Write a file, and make its directory."""
        if self._planned is not None:
            self._planned({"action": "writeFile", "path": path, "text": f"write {len(data)} bytes to {path}"})
            return
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
        except OSError as error:
            raise AdminError(f"cannot write {path}: {error.strerror}") from error

    def change(self, action: str, text: str, effect: Callable[[], object]) -> None:
        """Change something on this machine; in a dry run only say so."""
        if self._planned is not None:
            self._planned({"action": action, "text": text})
        else:
            effect()

    def ask_consent(self, strangers: list[str], what: str) -> None:
        """Raise UsageError where --yes is needed and missing: for addresses of other machines. A dry run needs none."""
        if strangers and not self.has_consent and self._planned is None:
            raise UsageError(f"{what} ({', '.join(strangers[:3])}) needs --yes; --dry-run shows what it does")

    def any_number(self) -> int:
        """Return a number by chance, for the queue to begin with."""
        return int.from_bytes(os.urandom(2), "big")

    def pause(self, seconds: float) -> None:
        """Wait before the next round of a command that repeats. Raises PlanEnds in a dry run."""
        if self._planned is not None:
            raise PlanEnds
        time.sleep(seconds)  # a command line waits as long as its option says

    # -- brokers -----------------------------------------------------------------------------------------------------

    def targets(self, of_cluster: Callable[[str], list[str]]) -> list[str]:
        """Return the broker of -b, else the addresses that `of_cluster` returns for the cluster of -c. Raises ShowHelp
        without either.
        """
        if self.get("b"):
            return [self.get("b")]
        if self.get("c"):
            return of_cluster(self.get("c"))
        raise ShowHelp

    def for_each(self, addresses: Iterable[str], action: Callable[[str], None]) -> None:
        """Call `action` for each address; report a failure and continue with the others. If all fail for one reason,
        the exit status is that of this reason.
        """
        tried = 0
        statuses: set[int] = set()
        for address in addresses:
            tried += 1
            try:
                action(address)
            except AdminError as error:
                if tried == 1 and len(list(addresses)) == 1:
                    raise
                self.failed(str(error))
                statuses.add(error.exit_status)
        if self._failures and len(self._failures) == tried:
            failure = AdminError("; ".join(self._failures))
            if len(statuses) == 1:
                failure.exit_status = statuses.pop()
            raise failure

    def failed(self, text: str) -> None:
        """Report that part of the command failed; `finish` then raises."""
        self._failures.append(text)

    def finish(self) -> None:
        """Raise PartlyDone if a part failed."""
        if self._failures:
            raise PartlyDone("; ".join(self._failures))


def _shown(name: str) -> str:
    """Return an option or an argument as it stands on the command line."""
    if len(name) == 1:
        return f"-{name}"
    return name if name.isupper() else f"--{name}"
