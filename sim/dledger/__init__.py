"""The rules of a DLedger group under a seeded scheduler (bin/dev/simulate-dledger, docs/internals/dledger.md).

    world      one seed from start to verdict: events, clients, faults        __main__   the command line
    node       a member's process: its clock, its log, the actions of its rules
    network    messages that are late, lost, doubled, or cut off in one direction
    disk       a log in memory that loses what is not synced, fills up, or fails
    checks     what must hold after each step
    planted    bugs put in on purpose, each of which some seed must find

    java_member                                      a member by RocketMQ's rules, for mixed groups, and its parts:
    java_election, java_following, java_leading      votes; pushes at a follower; a leader
    java_pusher                                      a leader's view of one follower

There only the rules are the real code (dledger/rules). Everything else is a list in memory and a heap of events, so
that a seed takes some hundredths of a second. With `--members whole` everything of a member is real, above the network
and the disks of bin/dev/simulate; such a seed takes some tenths of a second:

    hosts          members on simulated hosts; tests of a member use it, too
    whole          one seed from start to verdict                whole_trouble    what goes wrong
    mirror         what a ledger holds, for the checks           whole_planted    bugs put in on purpose

With `--members brokers` or `receivers` it is three whole brokers, and such a seed takes some seconds:

    brokers        one seed: clients, trouble, what holds        brokers_planted  bugs put in on purpose
    receives       what clients that receive by POP must see
"""
