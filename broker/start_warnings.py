"""Warnings at start about doubtful settings. RocketMQ accepts them silently, so the broker starts nevertheless."""

from __future__ import annotations

from collections.abc import Iterator

from triomq.broker.configuration import Configuration
from triomq.remoting.link_tls import LinkTlsMode
from triomq.remoting.tls import ENFORCING, TlsSettings


def start_warnings(configuration: Configuration) -> Iterator[str]:
    """Return one sentence for each doubtful setting, with its consequence and the remedy."""
    broker = configuration.broker
    if not broker.namesrv_addr and not broker.fetch_namesrv_addr_by_address_server:
        yield (
            "no NameServer is configured, so clients cannot find this broker: set namesrvAddr, -n or the variable "
            "NAMESRV_ADDR to addresses such as 127.0.0.1:9876"
        )
    yield from _address_warnings(configuration)
    ha_tls = configuration.ha_tls
    tls = TlsSettings.from_values(configuration.properties)
    if tls.is_test_mode and (ha_tls.mode is not LinkTlsMode.disabled or ha_tls.is_dialing_secure):
        yield (
            "tls.ha.mode, tls.ha.enable: in test mode replication is encrypted, but neither side checks the other: set "
            "tls.test.mode.enable=false and certificates"
        )
    if configuration.group is not None:
        yield from _member_warnings(configuration, tls)
    elif tls.mode == ENFORCING and ha_tls.mode is LinkTlsMode.disabled:
        yield (
            "tls.server.mode=enforcing: the HA port is in the clear nevertheless, and carries every message: set "
            "tls.ha.mode=enforcing, here and at the slaves"
        )
    problem = delete_when_problem(configuration.store.delete_when)
    if problem:
        yield f"deleteWhen: {problem}, so no files are deleted then; write hours from 00 to 23, such as 04 or 04;16"


def _address_warnings(configuration: Configuration) -> Iterator[str]:
    bound, broker = configuration.server.bind_address, configuration.broker
    told = {"brokerIP1": (broker.broker_ip1, "clients"), "brokerIP2": (broker.broker_ip2, "slaves")}
    for key, (address, who) in told.items():
        if bound not in ("", "0.0.0.0", "::", address):
            yield (
                f"bindAddress={bound}: {who} are sent to {address}, where nothing listens unless it is forwarded: "
                f"set {key}={bound}"
            )


def _member_warnings(configuration: Configuration, tls: TlsSettings) -> Iterator[str]:
    member = configuration.member_tls
    if tls.is_test_mode and (member.mode is not LinkTlsMode.disabled or member.is_dialing_secure):
        yield (
            "tls.dleger.mode, tls.dleger.enable: in test mode what members say is encrypted, but no side checks the "
            "other: set tls.test.mode.enable=false and certificates"
        )
    if tls.mode == ENFORCING and member.mode is LinkTlsMode.disabled:
        yield (
            "tls.server.mode=enforcing: the port of dLegerPeers is in the clear nevertheless, and carries every "
            "message: set tls.dleger.mode=enforcing at all members"
        )


def delete_when_problem(text: str) -> str | None:
    """Return why `text` is not a list of hours separated by ';', or None if it is one."""
    hours = [part.strip() for part in text.split(";") if part.strip()]
    if not hours:
        return "no hour is given"
    for hour in hours:
        if not (hour.isascii() and hour.isdigit()):
            return f"{hour!r} is not an hour"
        if int(hour) > 23:
            return f"there is no hour {hour}"
    return None
