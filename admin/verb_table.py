"""Every verb of mqadmin: commands that RocketMQ's tool does not have.

    (name, arguments, one line of help, options, notes)
    an option: (long name, letter or "", name of its value or "" without one, help); a value NAME... may be repeated
    notes: "yes": it destroys, so a script needs --yes

Command lines, help, completion and documentation are made from this table. It is plain data, as `table`.
"""

from __future__ import annotations

VerbRow = tuple[str, str, str, tuple[tuple[str, str, str, str], ...], str]

VERBS: tuple[VerbRow, ...] = (
    ("context add", "NAME", "Remember a cluster under a name", (
        ("accessKey", "a", "KEY", "the account; MQADMIN_SECRET_KEY, --secretFile or standard input has its secret"),
        ("secretFile", "", "FILE", "a file whose first line is the secret; - is standard input"),
        ("tls", "", "", "connect with TLS"),
        ("caFile", "", "FILE", "the certificates to trust"),
    ), ""),
    ("context use", "NAME", "Choose the cluster of later commands", (), ""),
    ("context list", "", "Show the remembered clusters, without secrets", (), ""),
    ("context remove", "NAME", "Forget a cluster", (), ""),
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
    ("selftest", "DIR", "Test whether the disk of a directory keeps what a broker's store promises", (
        ("seconds", "", "NUMBER", "how long it takes, about (30)"),
        ("mib", "", "NUMBER", "space it may use, in MiB (256)"),
    ), ""),
)  # fmt: skip
