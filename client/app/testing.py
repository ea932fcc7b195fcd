"""What a test puts in the place of an application's cluster, and of what it provides."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Protocol

from triomq.client.core.config import ClientOptions
from triomq.client.core.errors import ConfigurationError


class NameServed(Protocol):
    """A cluster that runs: `LocalCluster`, `ProcessCluster`, the fixtures of the pytest plugin."""

    name_server: str


@dataclass(frozen=True)
class Replaced:
    """The options of clients that replace those of the application, and providers that replace those of their name."""

    options: ClientOptions
    provides: Mapping[str, Callable[..., Any]]

    @classmethod
    def by(
        cls, cluster: NameServed | str, options: ClientOptions, provides: Mapping[str, Callable[..., Any]]
    ) -> Replaced:
        """Return what replaces. Raises ConfigurationError for what is no cluster, or does not run."""
        address = cluster if isinstance(cluster, str) else getattr(cluster, "name_server", None)
        if not isinstance(address, str):
            raise ConfigurationError(
                f"testing takes a cluster (the fixture rocketmq, a LocalCluster) or the address of a NameServer, not "
                f"{cluster!r}"
            )
        if not address:
            raise ConfigurationError(f"the {type(cluster).__name__} does not run yet: enter it before app.testing(...)")
        # A secret never goes to a cluster that it is not for, and the channel is as the test's cluster has it.
        plain: dict[str, Any] = {"credentials": None, "tls": False, "vip_channel": False}
        return cls({"name_server": address, **plain, **options}, provides)  # type: ignore[typeddict-item]


def check_replacements(given: Collection[str], known: Collection[str]) -> None:
    """Raise ConfigurationError for a replacement of something that the application does not provide."""
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it provides {', '.join(known) or 'nothing'}"
            raise ConfigurationError(f"the application provides no {name!r} that could be replaced: {hint}")
