"""Every verb of mqadmin: commands that RocketMQ's tool does not have.

    (name, arguments, one line of help, options, notes)
    an option: (long name, letter or "", name of its value or "" without one, help); a value NAME... may be repeated
    notes: "yes": it destroys, so a script needs --yes; "local": it asks no cluster

Command lines, help, completion and documentation are made from this table. It is plain data, as `table`.
"""

from __future__ import annotations

VerbRow = tuple[str, str, str, tuple[tuple[str, str, str, str], ...], str]

Option = tuple[str, str, str, str]

_BROKER: Option = ("broker", "b", "NAME", "only this broker")
_BROKERS: Option = ("broker", "b", "NAME...", "only this broker, a name or HOST:PORT; otherwise all masters")
_MEMBERS: Option = (
    "broker",
    "b",
    "NAME...",
    "only this broker: NAME, NAME/ID or HOST:PORT; otherwise all, slaves included",
)
_QUEUE: Option = ("queue", "q", "NUMBER", "only the queue with this number")
_TOPIC: Option = ("topic", "t", "TOPIC", "only this topic")
_STORE: Option = ("config", "c", "FILE", "the broker's configuration, with the sizes of its files")
_THRESHOLDS: tuple[Option, ...] = (
    ("warn", "w", "NUMBER", "a warning above this"), ("crit", "c", "NUMBER", "critical above this"),
)  # fmt: skip

VERBS: tuple[VerbRow, ...] = (
    ("lag", "[GROUP]", "Show how far groups are behind, in messages and in time, the worst first", (
        _TOPIC,
        ("first", "", "N", "show only the first N lines"),
        ("atLeast", "", "N", "show only groups with a backlog of at least N messages"),
    ), ""),
    ("tail", "TOPIC", "Show messages of a topic, without storing an offset", (
        ("from", "", "WHERE", "first, last, -N for the last N messages (-10), an offset, a time, or an age as 15m"),
        ("follow", "f", "", "wait for more messages, until Ctrl-C"),
        ("count", "c", "N", "stop after N messages"),
        ("group", "g", "GROUP", "all messages from where this group is"),
        ("tag", "", "EXPRESSION", "only messages with these tags: A || B"),
        ("sql", "", "EXPRESSION", "only messages that fit a SQL92 expression; the broker needs enablePropertyFilter"),
        ("key", "k", "KEY", "only messages with this key"),
        ("property", "p", "NAME=VALUE...", "only messages with this property"),
        ("grep", "", "REGEX", "only messages whose body fits"),
        _BROKER, _QUEUE,
        ("format", "", "FORMAT",
         "as kcat: %t topic %b broker %q queue %o offset %k keys %g tags %s body %S size %T ms %D time %h properties"),
    ), ""),
    ("send", "TOPIC [BODY]", "Send messages: BODY, a file, or standard input", (
        ("file", "", "FILE", "the body is in this file"),
        ("lines", "l", "", "each line is a message; all are sent, also when nobody reads the output any longer"),
        ("key", "k", "KEY...", "a key"),
        ("tag", "", "TAG", "the tag"),
        ("property", "p", "NAME=VALUE...", "a property"),
        ("delay", "", "LEVEL", "deliver later: a delay level from 1 to 18"),
        ("broker", "b", "NAME", "to this broker"),
        ("queue", "q", "NUMBER", "to this queue of --broker"),
        ("orderBy", "", "KEY", "to the queue that this key always has"),
        ("count", "c", "N", "send the body N times"),
        ("rate", "", "N", "at most N messages a second"),
    ), ""),
    ("offsets show", "GROUP", "Show where a group reads next", (_TOPIC,), ""),
    ("offsets reset", "GROUP TOPIC", "Move a group: first, last, a time, an offset, forwards or back", (
        ("to", "", "WHERE", "first, last, a time, an age as 15m, an offset, +N or -N"), _BROKER, _QUEUE,
        ("create", "", "", "also a group that no broker knows"),
    ), "yes"),
    ("offsets copy", "FROM TO", "Give a group the offsets of another", (_TOPIC,), "yes"),
    ("offsets export", "GROUP", "Write offsets as JSON lines", (_TOPIC,), ""),
    ("offsets import", "FILE", "Set the offsets that `offsets export` wrote; - is standard input", (
        ("group", "g", "GROUP", "for this group instead"),
    ), "yes"),
    ("pop show", "[GROUP]", "Show what groups received one by one (POP) and did not acknowledge, by queue", (
        _TOPIC, _BROKERS,
    ), ""),
    ("pop release", "GROUP", "Let what a group has in flight (POP) be received again at once", (
        _TOPIC, _BROKERS, ("queue", "q", "NUMBER", "only the queue with this number of --topic"),
    ), "yes"),
    ("dlq list", "", "Show how many dead letters each group has", (), ""),
    ("dlq show", "GROUP", "Show the dead letters of a group", (("count", "c", "N", "at most N (20)"),), ""),
    ("dlq resend", "GROUP", "Send dead letters to the members of their group again", (
        ("id", "i", "ID...", "the message with this id, of the dead letter or of its original"),
        ("all", "", "", "every message"),
        ("again", "", "", "also those that were resent before"),
    ), "yes"),
    ("dlq export", "GROUP", "Write the dead letters of a group as JSON lines", (), ""),
    ("config get", "[KEY...]", "Show settings of brokers", (_MEMBERS,), ""),
    ("config set", "KEY VALUE", "Change a setting of brokers", (_MEMBERS,), "yes"),
    ("config diff", "", "Show the settings in which brokers differ; exits with 1 if there are any", (
        _MEMBERS, ("all", "", "", "also names, ids and addresses, which always differ"),
    ), ""),
    ("message", "ID", "Find a message by either kind of id, without knowing topic or broker", (_TOPIC,), ""),
    ("trace", "ID", "Show what happened to a message, in the order of time", (
        _TOPIC, ("traceTopic", "", "TOPIC", "the topic with the traces (RMQ_SYS_TRACE_TOPIC)"),
    ), ""),
    ("health", "[KIND]", "Check that NameServers and brokers respond: broker, namesrv, or both; exits with 0 or 2", (
        ("address", "a", "HOST:PORT...", "only this broker"), ("quiet", "", "", "print nothing"),
    ), ""),
    ("version", "", "Show the versions of this tool, of every NameServer and of every broker, slaves included", (), ""),
    ("dledger members", "[GROUP]", "Show the members of DLedger groups; exits with 0, or 2 if one is away", (), ""),
    ("dledger transfer", "GROUP MEMBER", "Let a member of a DLedger group lead", (), ""),
    ("dledger replace", "GROUP OLD NEW", "Exchange a member (- for nobody): hand over, say what to do by hand", (
        ("within", "", "SECONDS", "give up after that long (3600)"),
    ), ""),
    ("check lag", "[GROUP]", "Compare a backlog with thresholds; exits with 0, 1, 2, or 3 for unknown", (
        *_THRESHOLDS, ("seconds", "s", "", "measure time instead of messages"),
    ), ""),
    ("check disk", "", "Compare the use of the brokers' disks, in percent, with thresholds", _THRESHOLDS, ""),
    ("check replication", "", "Compare the bytes that slaves lack with thresholds", _THRESHOLDS, ""),
    ("check registration", "", "Compare the brokers that a NameServer lacks with thresholds", (
        *_THRESHOLDS, ("broker", "b", "NAME...", "a broker that must be registered"),
    ), ""),
    ("doctor", "", "Examine everything: what is wrong, why it matters, what mends it; exits with 0, 1 or 2", (), ""),
    ("top", "", "Show brokers, the busiest topics, and the groups that are furthest behind, drawn again each second", (
        ("once", "", "", "show it once, after an interval in which rates are measured"),
        ("interval", "i", "SECONDS", "the time between two pictures (1)"),
        ("topics", "t", "N", "at most N topics (10; on a terminal, what it has room for)"),
        ("groups", "g", "N", "at most N groups (the same)"),
    ), ""),
    ("backup", "DIR", "Save topics, groups, offsets, accounts and settings of a cluster in a directory", (
        ("cluster", "c", "NAME", "only this cluster"),
        ("messages", "m", "TOPIC...", "also the messages of this topic"),
        ("atMost", "", "N", "refuse a topic with more than N messages (100000)"),
        ("namespace", "", "NAME...", "also the key-value pairs of this namespace; ORDER_TOPIC_CONFIG always"),
        ("secrets", "", "", "keep the secrets of accounts and settings, in plain text"),
    ), ""),
    ("restore", "DIR", "Create what a backup has and the cluster lacks; show what differs", (
        ("overwrite", "", "", "change what differs to what the backup has"),
        ("map", "", "OLD=NEW...", "restore the broker OLD of the backup into the broker NEW"),
        ("all", "", "", "show also what is the same"),
    ), "yes"),
    ("bench", "[KIND]", "Measure a bounded load on a topic of its own: send, receive, both at once, or latency", (
        ("count", "", "N", "this many messages (10000, at most 1000000)"),
        ("size", "", "BYTES", "bytes of a body (1024)"),
        ("connections", "", "N", "connections of each kind, a queue for each (4, at most 64)"),
        ("window", "w", "N", "when sending, N requests in flight on each connection (1, at most 256)"),
        ("seconds", "s", "N", "stop after this time (30)"),
        ("cluster", "c", "NAME", "only the brokers of this cluster"),
    ), ""),
    ("store verify", "DIR", "Check the store of a stopped broker; exits with 0 or 1", (_STORE,), "local"),
    ("store dump", "DIR", "Print a line for each record of a stopped broker's commit log", (
        _STORE, ("start", "", "OFFSET", "the physical offset of the first record"),
    ), "local"),
    ("store rebuild", "DIR", "Make the queues and the index of a stopped broker from its commit log", (
        _STORE,
    ), "yes local"),
    ("explain", "[CODE]", "Explain a response code, by number or name", (), "local"),
    ("completion", "SHELL", "Print a completion script for bash, zsh or fish", (), "local"),
    ("context add", "NAME", "Remember a cluster under a name", (
        ("accessKey", "a", "KEY", "the account; MQADMIN_SECRET_KEY, --secretFile or standard input has its secret"),
        ("secretFile", "", "FILE", "a file whose first line is the secret; - is standard input"),
        ("tls", "", "", "connect with TLS"),
        ("caFile", "", "FILE", "the certificates to trust"),
    ), "local"),
    ("context use", "NAME", "Choose the cluster of later commands", (), "local"),
    ("context list", "", "Show the remembered clusters, without secrets", (), "local"),
    ("context remove", "NAME", "Forget a cluster", (), "local"),
    ("quota set", "KIND NAME QUOTAS", "Limit one account, address or group, such as bytesIn=1048576,connections=9", (
        ("broker", "b", "ADDRESS", "at this broker"),
        ("cluster", "c", "NAME", "at all brokers of this cluster"),
    ), ""),
    ("quota remove", "KIND NAME", "Give one account, address or group the default quotas again", (
        ("broker", "b", "ADDRESS", "at this broker"),
        ("cluster", "c", "NAME", "at all brokers of this cluster"),
    ), ""),
    ("quota list", "", "Show the quotas; those of * are the defaults of each kind", (
        ("broker", "b", "ADDRESS", "of this broker"),
        ("cluster", "c", "NAME", "of all brokers of this cluster"),
    ), ""),
    ("mcp", "", "Serve an assistant over the Model Context Protocol, on standard input and output", (
        ("allow-changes", "", "", "offer also what changes something; each change needs the token of its plan"),
        ("seconds", "s", "SECONDS", "how long one call may take (30)"),
        ("bytes", "", "BYTES", "how much one answer may have (65536)"),
    ), ""),
    ("selftest", "DIR", "Test whether the disk of a directory keeps what a broker's store promises", (
        ("seconds", "", "NUMBER", "how long it takes, about (30)"),
        ("mib", "", "NUMBER", "space it may use, in MiB (256)"),
    ), "local"),
)  # fmt: skip
