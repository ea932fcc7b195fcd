"""The client without input and output: everything that is decided, built or read without waiting.

Pure and synchronous: no event loop, no connection, no clock (callers pass the time). Two drivers stand on it: the trio
client (`instance`, `produce`, `consume`) and the plain sockets of Spark's executors (`triomq.spark`).

What is here, by question:

    where is a topic?        routes              RouteTable: topics, their queues, the addresses of their brokers
                             name_server_list    NameServerList: which name server to ask first
    which queue?             routes              TopicRoute.next_queue: round robin, avoiding brokers that failed
                             queue_choice        by_hash, by_random, QueueSelector
                             latency             LatencyFaults: brokers to avoid for a while
                             allocation          the share of one consumer in the queues of a topic
    what goes out?           requests            Call: a request and the reader of its response; one function for each
                             outgoing            MessagePreparer, Outgoing: checks, ids, compression, batches
                             send_requests       SendRequests: send requests; send_result reads the response
                             signing             SigningHook: ACL signatures
                             namespace           Namespace: the prefix of topics and groups
    is it tried again?       retry               RETRIED_SENDS, NOT_REGISTERED: tables of response codes
    what was consumed?       process_queue       ProcessQueue: pulled messages of one queue, and the offset to commit
                             offsets             OffsetTable, LocalOffsetFile
                             consumer_stats      ConsumerStats
    what can be set?         config              ClientConfig, ClientOptions, Credentials
                             consume_rules       ConsumeRules
                             hooks               what applications can look into
                             option_names        which option was meant by a name that does not exist
    what comes back?         results, errors     the values and the tree of exceptions
    who is this client?      client_id           the client id that brokers see
    where do logs go?        log                 loggers that end in Python's logging

A driver that asks a broker for something does three steps:

    call = requests.max_offset(queue)
    response = <send call.request to `address`, wait>
    offset = call.result(response, address)         # raises BrokerRefused
"""
