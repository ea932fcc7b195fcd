"""mqadmin: the administration of a cluster from the command line, as RocketMQ 4.9.7's, without Java.

    table        every command and option, as data
    command      help and reading of a command line
    session      requests to NameServers and brokers over blocking sockets
    output       text for people and scripts, JSON for programs
    commands/    what each command asks and prints

A command is a process that lives for a tenth of a second. So nothing here imports trio, msgspec, structlog or yaml
before a command needs it; a test reads the import graph.
"""
