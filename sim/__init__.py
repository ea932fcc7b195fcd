"""Whole clusters in one deterministic run: NameServer, brokers, slaves and clients with virtual time, a
network and disks that fail on request (bin/simulate, docs/internals/testing.md).

    run         one seed from start to verdict         __main__     the command line
    plan        what one seed does: settings, faults   shrink       the shortest plan that still fails
    determinism scheduler, threads, random numbers     trace        what happened, and its digest
    network     hosts, connections, partitions         disk         files with power failures
    cluster     nodes that start, die and return
    workload    what clients do and remember           checks       what must hold afterwards
    planted     bugs put in on purpose, each of which a run must find

It drives the real broker, NameServer and client. Only the system below them is simulated: remoting/network.py and
store/disk/files.py are the seams.
"""
