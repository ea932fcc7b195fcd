"""The run of a command: its options, the session and the output."""

from __future__ import annotations

from triomq.admin.errors import AdminError, PartlyDone, UsageError
from triomq.admin.java_text import parse_time
from triomq.admin.output import Output
from triomq.admin.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class ShowHelp(Exception):
    """A required option is missing, so the help is shown, as RocketMQ does."""


class Run:
    def __init__(self, session: Session, options: dict[str, str], out: Output) -> None:
        self.session = session
        self.out = out
        self._options = options
        self._failures: list[str] = []

    def has(self, letter: str) -> bool:
        return letter in self._options

    def get(self, letter: str, default: str = "") -> str:
        return self._options.get(letter, default).strip()

    def number(self, letter: str, default: int) -> int:
        text = self.get(letter)
        if not text:
            return default
        try:
            return int(text)
        except ValueError:
            raise UsageError(f"-{letter} must be a whole number, not {text!r}") from None

    def flag(self, letter: str, default: bool = False) -> bool:
        """Return an option with the value true or false."""
        text = self.get(letter).lower()
        return default if not text else text == "true"

    def time(self, letter: str, default: int) -> int:
        """Return the milliseconds of an option that is a time."""
        text = self.get(letter)
        if not text:
            return default
        try:
            return parse_time(text)
        except ValueError as error:
            raise UsageError(f"-{letter}: {error}") from None

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
        """Call `action` for each address; report a failure and continue with the others."""
        tried = 0
        for address in addresses:
            tried += 1
            try:
                action(address)
            except AdminError as error:
                if tried == 1 and len(list(addresses)) == 1:
                    raise
                self.failed(str(error))
        if self._failures and len(self._failures) == tried:
            raise AdminError("; ".join(self._failures))

    def failed(self, text: str) -> None:
        """Report that part of the command failed; `finish` then raises."""
        self._failures.append(text)

    def finish(self) -> None:
        """Raise PartlyDone if a part failed."""
        if self._failures:
            raise PartlyDone("; ".join(self._failures))
