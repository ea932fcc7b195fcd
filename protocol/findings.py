"""What is wrong with groups and clusters, in words: for `mqadmin doctor` and for the dashboard."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

CRITICAL, WARNING, INFORMATION = "CRITICAL", "WARNING", "INFORMATION"
RECENT_MS = 24 * 3600 * 1000
"""Dead letters that are older are known."""


BEHIND_BYTES = 16 * 1024 * 1024
"""A slave that lacks more of the log than this is behind."""


class Finding:
    """`code` names the fault for programs. `mend` says what to do; commands in it stand in backticks, and names
    in capitals in a command (FILE, DIR, PID) are for the reader to fill in."""

    __slots__ = ("code", "mend", "severity", "subject", "what", "why")

    def __init__(self, severity: str, code: str, subject: str, what: str, why: str, mend: str) -> None:
        self.severity = severity
        self.code = code
        self.subject = subject
        self.what = what
        self.why = why
        self.mend = mend

    def item(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in ("severity", "code", "subject", "what", "why", "mend")}


def nobody_reads(group: str, waiting: int, cluster: str) -> Finding:
    """Return the finding of a group without members."""
    return Finding(
        WARNING,
        "nobody-reads",
        group,
        f"group {group} has no member, and {waiting} messages wait for it",
        "retention deletes messages that nobody read",
        f"start a consumer, or `mqadmin deleteSubGroup -g {group} -c {cluster} -r true` if nobody needs it",
    )


def beyond_end(group: str, topic: str, queues: Sequence[tuple[str, int, int, int]]) -> Finding:
    """Return the finding of offsets beyond the end. A queue is broker name, queue id, offset and end."""
    shown = ", ".join([f"{name}/{number} is at {offset} of {end}" for name, number, offset, end in queues[:5]])
    return Finding(
        WARNING,
        "offset-beyond-end",
        group,
        f"group {group} is beyond the end of {len(queues)} queues of {topic}: {shown}",
        "messages that arrive below the offset are skipped by members that begin there",
        f"stop the members; `mqadmin offsets reset {group} {topic} --to last`, or to a time to read what was skipped",
    )


def subscriptions_differ(group: str, what: str) -> Finding:
    """Return the finding of members that want different things; `what` says which."""
    return Finding(
        CRITICAL,
        "subscriptions-differ",
        group,
        what,
        "the broker keeps one subscription for a group: messages that only some members want are lost",
        "give both kinds of member the same topics and tags, or groups of their own: "
        f"`mqadmin consumerConnection -g {group}`",
    )


def dead_letters(group: str, messages: int) -> Finding:
    """Return the finding of dead letters of which the newest is recent."""
    return Finding(
        WARNING,
        "dead-letters",
        group,
        f"group {group} gave up on messages within a day: {messages} dead letter{'' if messages == 1 else 's'}",
        "nobody processes them until they are sent again, and retention deletes them",
        f"`mqadmin dlq show {group}`, then `mqadmin dlq resend {group} --all`",
    )


def broker_unreachable(name: str, address: str) -> Finding:
    """Return the finding of a broker that does not respond at the address which it registered."""
    return Finding(
        CRITICAL,
        "broker-unreachable",
        name,
        f"broker {name} advertises {address}, which cannot be reached from here",
        "clients connect to the advertised address: from a container or another network it may be wrong",
        f"set brokerIP1 in broker.conf of {name} to an address that clients reach, and restart it",
    )


def hung(what: str, subject: str, address: str) -> Finding:
    """Return the finding of a daemon that accepts connections and does not respond. `what` it is: "broker a"."""
    return Finding(
        CRITICAL,
        "hung",
        subject,
        f"{what} ({address}) accepts connections and does not respond",
        "clients wait for it until their time limits, and go elsewhere only then",
        f"look at its process at {address.rpartition(':')[0]}: "
        "`ps -eo pid,stat,pcpu,args | grep -E 'triomq|rocketmq'`; `kill -CONT PID` if it is stopped (T), "
        "otherwise its log names what blocks it: restart it",
    )


def broker_gone(
    name: str, number: int, address: str, seen_ms_ago: int, topics: Sequence[str], *, is_orderly: bool
) -> Finding:
    """Return the finding of a broker that a NameServer has known within a day. `topics` have no route without it."""
    shown = f"broker {name} (id {number}, {address})"
    if is_orderly:
        what = f"{shown} was stopped, and registered last {_ago(seen_ms_ago)} ago"
    else:
        what = f"{shown} is gone: it registered last {_ago(seen_ms_ago)} ago"
    if topics:
        what += f"; nobody can use {', '.join(topics)} now"
    return Finding(
        INFORMATION if is_orderly and not topics else CRITICAL,
        "broker-gone",
        name,
        what,
        "what only it has can be neither read nor written",
        f"start it at {address.rpartition(':')[0]}: `mqbroker -c FILE`; one that stays away is forgotten in a day",
    )


def _ago(milliseconds: int) -> str:
    minutes = milliseconds // 60_000
    return f"{milliseconds // 1000} s" if minutes < 2 else f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"


def contested(name: str, number: int, addresses: Sequence[str]) -> Finding:
    """Return the finding of brokers, with their addresses, that were given one name and id."""
    return Finding(
        CRITICAL,
        "contested",
        name,
        f"brokers at {' and '.join(addresses)} register as {name} (id {number}) and displace each other",
        "clients find now the one and now the other: they miss what the other has, and sends fail",
        "give each a brokerName or brokerId of its own and restart it: "
        + ", ".join([f"`mqadmin config get --broker {address} brokerName brokerId`" for address in addresses]),
    )


def broker_refuses(name: str, address: str, reason: str) -> Finding:
    """Return the finding of a broker that does not say how it is to this account."""
    return Finding(
        WARNING,
        "broker-refuses",
        name,
        f"broker {name} ({address}) refuses to say how it is: {reason}",
        "what is wrong with it stays unknown",
        "name an administrator's account in MQADMIN_ACCESS_KEY and MQADMIN_SECRET_KEY, or in conf/tools.yml of "
        f"ROCKETMQ_HOME; `mqadmin brokerStatus -b {address}`",
    )


def no_master(name: str, dledger_group: str) -> Finding:
    """Return the finding of a broker name without a master. `dledger_group`: that of its members, "" of slaves."""
    if dledger_group:
        return Finding(
            CRITICAL,
            "dledger-no-leader",
            name,
            f"no broker of the group {dledger_group} is its master",
            "its topics can be read but not written",
            f"start the members that are away; `mqadmin dledger members {dledger_group}` shows what the others know",
        )
    return Finding(
        CRITICAL,
        "no-master",
        name,
        f"broker {name} has slaves but no master",
        "its topics can be read but not written",
        f"start the master of {name}, brokerId=0",
    )


def no_slave(name: str, address: str) -> Finding:
    """Return the finding of a SYNC_MASTER, with its address, that is alone."""
    return Finding(
        CRITICAL,
        "no-slave",
        name,
        f"broker {name} is a SYNC_MASTER without a slave",
        "producers get SLAVE_NOT_AVAILABLE for every message",
        f"start a slave of {name}, or `mqadmin updateBrokerConfig -b {address} -k brokerRole -v ASYNC_MASTER`",
    )


def name_server_down(address: str) -> Finding:
    """Return the finding of a NameServer that does not respond."""
    return Finding(
        CRITICAL,
        "nameserver-down",
        address,
        f"NameServer {address} does not respond",
        "clients that use it alone find no topic, and brokers cannot register there",
        f"start it: `mqnamesrv -c FILE`, with listenPort={address.rpartition(':')[2]} in it",
    )


def not_registered(name: str, broker: str, name_server: str) -> Finding:
    """Return the finding of a broker, with its address, that other NameServers know."""
    return Finding(
        CRITICAL,
        "not-registered",
        name,
        f"broker {name} ({broker}) is not registered at NameServer {name_server}",
        "clients of this NameServer do not see the broker's queues",
        f"list every NameServer in namesrvAddr of broker.conf at {broker}, and check that it reaches {name_server}",
    )


def slave_behind(name: str, number: int, behind_bytes: float, slave: str, master: str) -> Finding:
    """Return the finding of a slave, its broker id and address, that lacks much of its master's log."""
    return Finding(
        WARNING,
        "slave-behind",
        name,
        f"slave {number} of broker {name} lacks {behind_bytes / 2**20:.0f} MiB of the log",
        "what it lacks is lost if the master's disk fails",
        f"`mqadmin brokerStatus -b {slave}`, and check the network from it to {master}",
    )


def versions_differ(addresses: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Yield the finding of brokers with different versions. `addresses` of brokers by version; "" is unknown."""
    known = {version: found for version, found in sorted(addresses.items()) if version}
    if len(known) > 1:
        shown = "; ".join([f"{version[:40]} at {', '.join(found[:3])}" for version, found in known.items()])
        yield Finding(
            WARNING,
            "versions-differ",
            "cluster",
            f"brokers have different versions: {shown}",
            "what clients may use depends on the broker that they reach; this is for the time of an upgrade only",
            f"upgrade the brokers of the older version: `mqadmin brokerStatus -b {next(iter(known.values()))[0]}`",
        )


def build_of(table: Mapping[str, str]) -> str:
    """Return product and version that a daemon tells of itself; "" for one that does not, as RocketMQ's."""
    return f"{table.get('product', '')} {table.get('productVersion', '')}".strip()


def builds_differ(addresses: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Yield the finding of brokers that run different builds. `addresses` of brokers by build; "" is unknown."""
    known = {build: found for build, found in sorted(addresses.items()) if build}
    if len(known) > 1:
        shown = "; ".join([f"{build[:60]} at {', '.join(found[:3])}" for build, found in known.items()])
        yield Finding(
            WARNING,
            "builds-differ",
            "cluster",
            f"brokers run different builds: {shown}",
            "what one of them mends or adds the others lack; this is for the time of an upgrade only",
            "upgrade the others, slaves first: `mqadmin version` shows each",
        )


def queue_counts(
    topic: str, counts: Mapping[str, tuple[int, int]], cluster: str, clusters: Collection[str]
) -> Iterator[Finding]:
    """Yield what is wrong with the numbers of queues of a topic, which are to read and to write by broker name.
    `cluster` is where the topic is changed; a topic with the name of a broker or of one of `clusters` is their own."""
    if len(set(counts.values())) > 1 and topic not in counts and topic not in clusters:
        shown = ", ".join([f"{name} has {read} to read and {write} to write" for name, (read, write) in counts.items()])
        most = max(write for _, write in counts.values())
        yield Finding(
            WARNING,
            "queue-counts",
            topic,
            f"topic {topic} has different numbers of queues: {shown}",
            "brokers get unequal load, and members unequal work",
            f"`mqadmin updateTopic -c {cluster} -t {topic} -r {most} -w {most}`",
        )


def unread_queues(topic: str, name: str, read: int, write: int, cluster: str) -> Iterator[Finding]:
    """Yield the finding of a topic with fewer queues to read than to write at the broker `name`."""
    if read < write:
        yield Finding(
            WARNING,
            "unread-queues",
            topic,
            f"topic {topic} has {write} queues to write and {read} to read at {name}",
            "nobody receives the messages of the other queues",
            f"`mqadmin updateTopic -c {cluster} -t {topic} -r {write} -w {write}`",
        )
