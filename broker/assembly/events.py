"""Events: who tells whom. `connect` gives each part that tells of changes those who hear of them.

    TopicTable (TopicEvents)     changed          ->  Registration       notes the topic for every NameServer
                                                      RequestModes       forgets those of a topic that is gone
                                 made_by_use      ->  Registration       registers soon
                                 made_again       ->  OffsetTable        drops offsets of the topic's former life
                                                      BrokerStats        forgets how far its groups have read
                                                      PopOnDemand        forgets what is in flight of it
                                                      RequestModes       forgets those of its former life
                                 before_create    ->  Quotas             may refuse a topic
    GroupTable (GroupEvents)     before_create    ->  Quotas             may refuse a group
                                 deleted          ->  RequestModes       forgets those of the group
    Replica (log of a slave)     deleted          ->  TopicTable         remembers it, in a group
                                                      OffsetTable        drops offsets of the topic
                                                      BrokerStats        forgets how far its groups have read
                                 tables           ->  TableLog           takes the record, in a group
    MasterTables                 asks             ->  GroupRoles         where its master is, in a group
    GroupRoles                   deposed          ->  PopOnDemand        forgets what is in flight

What a part learns in its constructor, or when it is run, stands where that is done:

    ConsumerTable                members changed  ->  ClientNotifier     asks them to rebalance          tables.py
                                 registered, gone ->  FilterTable        compiles, or lets filters age
    Registration                 master known     ->  MasterTables, LogFollower                          serving.py
    LogFollower                  log cut          ->  LogServer          closes the links of slaves
    Quotas                       changed          ->  PullProcessor, and the checks of both ports
    DelayedDelivery              clients wait     <-  Turn               ends a batch for them, outside of a group
    tables of a group            changed          ->  TableLog           writes records of the log       group.py
    ConfigurationUpdate          settings changed ->  what keeps a copy of a setting                     timetable.py
    Deliveries                   times, moves     ->  Waiting            looks at waiting receives          pop.py
    RemotingServer (Listeners)   connections      ->  tables of clients, quotas, held pulls              listeners.py
"""

from __future__ import annotations

from triomq.broker.assembly.serving import Serving
from triomq.broker.tables.groups import GroupEvents
from triomq.broker.tables.topics import TopicEvents


def connect(serving: Serving) -> None:
    """Let the parts hear of one another. Before this they change without telling anybody, as while files are read."""
    tables, registration, quotas, group = serving.tables, serving.registration, serving.quotas, serving.group
    topics, offsets = tables.metadata.topics, tables.metadata.offsets
    stats, store, modes = tables.stats, tables.store, tables.request_modes

    def changed(topic: str) -> None:
        registration.topic_changed(topic)
        if topics.get(topic) is None:
            modes.topic_gone(topic)

    def deleted(topic: str) -> None:
        # On a slave the positions of groups end with a topic when its log says that the topic is deleted, on a master
        # at the latest before a topic of that name is made again.
        if group is not None:
            topics.remember_deleted(topic)
        offsets.remove_topic(topic)
        stats.forget_next_offsets(topic=topic)

    def made_again(topic: str) -> None:
        offsets.remove_outlived(topic, store.reading.max_offset)
        serving.pop.topic_made_again(topic)
        modes.topic_gone(topic)
        stats.forget_next_offsets(topic=topic)

    topics.tell(
        TopicEvents(
            changed=changed,
            made_by_use=registration.register_soon,
            made_again=made_again,
            before_create=quotas.topic_made,
        )
    )
    tables.metadata.groups.tell(GroupEvents(before_create=quotas.group_made, deleted=modes.group_gone))
    store.replica.tell(deleted=deleted, tables=group.table_log.take if group is not None else None)
    if group is not None:
        serving.replication.master_tables.join(group)
        group.tell(deposed=serving.pop.deposed)
