"""Whole clusters in one deterministic run: NameServer, brokers, slaves and clients with virtual time, a
network and disks that fail on request (bin/dev/simulate, docs/internals/testing.md).

    run            one seed from start to verdict        __main__     the command line
    plan           what one seed does                    shrink       the smallest plan that still fails
    determinism    scheduler, time, threads, chance      trace        what happened, and its digest
    network        hosts, connections, partitions        disk         files with power failures and errors
    cluster        nodes that start, die and return      faults       what goes wrong
    workload       producers and consumers               history      what clients remember
    popping        consumers of POP; grpc_popping: those that speak gRPC, over grpc_wire
    administration administrators and strangers
    checks         what must hold of messages; delivery_checks: of their moments; pop_checks: of receipt
                   handles; cluster_checks: of servers
    planted        bugs put in on purpose, each of which a run must find; wrong: their methods

It drives the real broker, NameServer and client. Only the system below them is simulated: remoting/network.py and
store/disk/files.py are the seams.
"""
