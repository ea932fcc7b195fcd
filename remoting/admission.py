"""Which connections a server takes, counted from the moment they are accepted.

    in all           at most serverMaxConnections, and never the descriptors that the process keeps for its files
    per address      at most serverMaxConnectionsPerAddress; the hosts of one IPv6 /64 network count as one address
    silent           one that has sent nothing for serverSilentSeconds is closed, and so is one without a whole frame
                     for serverChannelMaxIdleTimeSeconds

If there is no room for a new connection, in all or for its address, the oldest silent one there makes room. So a flood
of connections that say nothing keeps nobody out: every newcomer has time to speak before its turn to leave comes.

An Admission holds one Place for each connection. Only the event loop touches it; it neither awaits nor reads a clock.
"""

from __future__ import annotations

import ipaddress
import resource
from collections import Counter
from math import inf
from typing import Final, Protocol

from msgspec import Struct

from triomq.protocol.address import HostPort
from triomq.remoting.config import ServerSettings
from triomq.remoting.log import get_logger

log = get_logger("triomq.remoting.admission")

FEWEST_CONNECTIONS: Final = 8
LIMITS: Final = "address", "all", "descriptors"
"""Reasons in `Admission.refused`."""
STRANGER: Final = "stranger"
"""The reason for those that a guard did not let in."""
MAKES_ROOM: Final = "it was silent and another needs its place"
_NETWORK_BITS: Final = 64
"""The smallest network that an IPv6 host gets; it may use any address of it."""


class Holder(Protocol):
    """What a place is for: a connection, or a socket that has not sent its first byte."""

    has_spoken: bool
    """Whether a whole frame has arrived."""
    last_active: float
    """Time of the last byte in either direction, or when it was accepted."""

    def close(self, reason: str) -> None: ...


class Guard(Protocol):
    """What the owner of a port decides about its connections. Must neither await nor raise."""

    plain_refused: str
    """What to do about a peer without TLS where TLS is required."""
    first_frame_seconds: float
    """A connection without a whole frame is closed after this time."""

    def may_connect(self, remote: HostPort, local: HostPort) -> bool:
        """Return whether a connection with these ends is served; asked when it is accepted."""

    def names_fault(self, names: frozenset[str]) -> str | None:
        """Return why a peer whose certificate has these names is refused after its TLS handshake, or None."""

    def keeps_place(self, holder: Holder) -> bool:
        """Return whether it makes room for nobody. Once it does, it always does."""


class AdmissionLimits(Struct, frozen=True):
    """`reserved_from` is the first descriptor that connections may not have; None if there is no such limit."""

    in_all: int
    per_address: int
    silent_seconds: float
    idle_seconds: float
    reserved_from: int | None = None

    @classmethod
    def of(cls, settings: ServerSettings, open_files_limit: int | None = None) -> AdmissionLimits:
        """Return the limits of a server in a process that may open `open_files_limit` files (None: ask the system)."""
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if open_files_limit is None else open_files_limit
        in_all, reserved_from = settings.max_connections, None
        if soft != resource.RLIM_INFINITY:
            reserved = min(settings.reserved_descriptors, soft // 2)
            in_all = min(in_all, max(FEWEST_CONNECTIONS, soft - reserved))
            reserved_from = soft - reserved // 2
        per_address = settings.max_connections_per_address or max(FEWEST_CONNECTIONS, in_all // 2)
        return cls(in_all, min(per_address, in_all), settings.silent_seconds, settings.idle_seconds, reserved_from)


class Place:
    """One connection that was let in, since when. Its owner calls `leave` when the connection is closed."""

    __slots__ = ("_admission", "_quiet_until", "address", "holder", "since")

    def __init__(self, admission: Admission, address: str, holder: Holder, since: float) -> None:
        self._admission: Admission | None = admission
        self._quiet_until = holder.last_active
        self.address = address
        self.holder = holder
        self.since = since

    @property
    def is_mute(self) -> bool:
        """Return whether not a byte has arrived."""
        return self.holder.last_active <= self._quiet_until

    def hand_over(self, holder: Holder, *, was_heard: bool = False) -> None:
        """Note that another object serves the connection now. `was_heard`: a byte has arrived already."""
        self.holder = holder
        self._quiet_until = -inf if was_heard else holder.last_active

    def shift(self, seconds: float) -> None:
        """Shift all times by a jump of the clock."""
        self.since += seconds
        self._quiet_until += seconds

    def leave(self) -> None:
        """Free the place; further calls do nothing."""
        if self._admission is not None:
            self._admission.left(self)
            self._admission = None


class Admission:
    """See the module's docstring."""

    def __init__(self, limits: AdmissionLimits, guard: Guard | None = None) -> None:
        """`guard` None: everybody is served, and keeps its place with its first whole frame."""
        self._limits = limits
        self._guard = guard
        self._places: set[Place] = set()
        self._by_address: Counter[str] = Counter()
        # Oldest first, all of them and by address. Those that spoke since are removed later.
        self._silent: dict[Place, None] = {}
        self._silent_of: dict[str, dict[Place, None]] = {}
        self.refused: Counter[str] = Counter()
        """Reason -> connections that got no place: STRANGER, or one of LIMITS."""
        self._refused: Counter[str] = Counter()  # those of them that are not logged yet
        self._refused_remote = ""

    def __len__(self) -> int:
        return len(self._places)

    def admits(self, remote: HostPort, local: HostPort) -> bool:
        """Return whether a connection with these ends may ask for a place."""
        if self._guard is None or self._guard.may_connect(remote, local):
            return True
        self.refused[STRANGER] += 1
        return False

    def enter(self, ip: str, holder: Holder, now: float, descriptor: int = -1) -> Place | None:
        """Return a place for a new connection from `ip`, or None if it must be closed."""
        limits, address = self._limits, address_group(ip)
        if limits.reserved_from is not None and descriptor >= limits.reserved_from:
            self.make_room("the process has few descriptors left")
            self._refuse(ip, "descriptors")
            return None
        if self._by_address[address] >= limits.per_address:
            if not self._close_oldest(self._silent_of.get(address, {}), MAKES_ROOM):
                self._refuse(ip, "address")
                return None
        elif len(self._places) >= limits.in_all and not self.make_room(MAKES_ROOM):
            self._refuse(ip, "all")
            return None
        place = Place(self, address, holder, now)
        self._places.add(place)
        self._by_address[address] += 1
        self._silent[place] = None
        self._silent_of.setdefault(address, {})[place] = None
        return place

    def make_room(self, reason: str) -> bool:
        """Close the oldest connection that has sent no whole frame yet. Return False if there is none."""
        return self._close_oldest(self._silent, reason)

    def _close_oldest(self, silent: dict[Place, None], reason: str) -> bool:
        while silent:
            place = next(iter(silent))
            self._not_silent(place)
            if not self._keeps(place.holder):
                place.holder.close(reason)
                place.leave()
                return True
        return False

    def _keeps(self, holder: Holder) -> bool:
        return holder.has_spoken if self._guard is None else self._guard.keeps_place(holder)

    def _not_silent(self, place: Place) -> None:
        self._silent.pop(place, None)
        of_address = self._silent_of.get(place.address)
        if of_address is not None:
            of_address.pop(place, None)
            if not of_address:
                del self._silent_of[place.address]

    def left(self, place: Place) -> None:
        """Forget a place (called by Place.leave)."""
        self._places.discard(place)
        self._not_silent(place)
        self._by_address[place.address] -= 1
        if not self._by_address[place.address]:
            del self._by_address[place.address]

    def sweep(self, now: float) -> None:
        """Close connections that were silent for too long, and log once how many were refused since the last sweep."""
        limits, guard = self._limits, self._guard
        frame_seconds = limits.idle_seconds if guard is None else guard.first_frame_seconds
        for place in list(self._silent):
            holder = place.holder
            age = now - place.since
            if age <= limits.silent_seconds:
                break
            if self._keeps(holder):
                self._not_silent(place)
            elif holder.has_spoken:
                continue  # it makes room if another needs its place
            elif place.is_mute:
                holder.close(f"silent for {limits.silent_seconds:g} s")
                place.leave()
            elif age > frame_seconds:
                holder.close(f"no whole frame in {frame_seconds:g} s")
                place.leave()
        if self._refused:
            log.warning(
                "connections refused",
                above_limit_per_address=self._refused["address"],
                above_limit_in_all=self._refused["all"],
                out_of_descriptors=self._refused["descriptors"],
                limit_per_address=limits.per_address,
                limit_in_all=limits.in_all,
                last_remote=self._refused_remote,
            )
            self._refused.clear()

    def time_jumped(self, seconds: float) -> None:
        """Shift all times by a jump of the clock."""
        for place in self._places:
            place.shift(seconds)

    def _refuse(self, ip: str, reason: str) -> None:
        self.refused[reason] += 1
        self._refused[reason] += 1
        self._refused_remote = ip


def address_group(ip: str) -> str:
    """Return the text under which connections from `ip` count: the address itself, or the /64 network of IPv6."""
    if ":" not in ip:
        return ip
    try:
        address = ipaddress.IPv6Address(ip.partition("%")[0])
    except ValueError:
        return ip
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, _NETWORK_BITS), strict=False))
