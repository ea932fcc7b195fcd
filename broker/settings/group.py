"""What the configuration says of a group (enableDLegerCommitLog): its members, and which of them this broker is."""

from __future__ import annotations

from dataclasses import dataclass

from triomq.dledger.member.hosts import PeerAddresses
from triomq.dledger.member.peers import PeersRefused, items_in, parse_peers, port_of
from triomq.dledger.member.port import MemberPort
from triomq.dledger.rules.core import Setup
from triomq.dledger.rules.timing import DEFAULT, FAST
from triomq.protocol.settings import SettingError
from triomq.remoting.link_tls import LinkTls
from triomq.store.config import FlushDiskType, StoreSettings


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """`number` is that of dLegerSelfId: as a slave the broker has the id `number` + 1. `port` is that of its own item
    in dLegerPeers; `addresses` may connect there besides the members' hosts."""

    setup: Setup
    number: int
    port: int
    addresses: PeerAddresses

    def member_port(self, bind_address: str, tls: LinkTls) -> MemberPort:
        return MemberPort(self.port, bind_address, self.addresses, tls)

    @classmethod
    def of(cls, store: StoreSettings) -> GroupSettings:
        """Return the group of a broker with enableDLegerCommitLog. Raises SettingError."""
        group = store.dleger_group
        if not group:
            raise SettingError("configuration", "dLegerGroup", "name the group, usually as brokerName")
        if not store.dleger_self_id:
            raise SettingError("configuration", "dLegerSelfId", "say which item of dLegerPeers this broker is, as n0")
        try:
            members = parse_peers(store.dleger_peers or "", store.dleger_self_id)
        except PeersRefused as error:
            raise SettingError("configuration", "dLegerPeers", str(error)) from None
        preferred = tuple(items_in(store.preferred_leader_id))
        for each in preferred:
            if each not in members:
                raise SettingError("configuration", "preferredLeaderId", f"{each} is not in dLegerPeers")
        try:
            addresses = PeerAddresses(store.dleger_peer_addresses)
        except ValueError as error:
            raise SettingError("configuration", "dLegerPeerAddresses", str(error)) from None
        is_sync = store.flush_disk_type is FlushDiskType.SYNC_FLUSH
        timing = FAST if store.dleger_fast_election else DEFAULT
        setup = Setup(group, store.dleger_self_id, members, is_sync, preferred, timing)
        number = int(store.dleger_self_id[1:])
        return cls(setup, number, port_of(members[store.dleger_self_id]), addresses)
