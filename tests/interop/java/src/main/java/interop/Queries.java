package interop;

import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageQueue;

/** Questions about stored messages: {@code offsets}, {@code query-key}, {@code view}. */
@SuppressWarnings("deprecation")
final class Queries {
    private Queries() {
    }

    /** Min and max queue offset of each queue of --topic, and the offset that belongs to --time-ms when given. */
    static void offsets(Arguments arguments, Events events, Stop stop) throws Exception {
        DefaultMQProducer producer = Clients.producer(arguments);
        try {
            for (MessageQueue queue : producer.fetchPublishMessageQueues(arguments.text("topic"))) {
                events.emit("offsets", "queue", queue.getQueueId(), "min_offset", producer.minOffset(queue),
                    "max_offset", producer.maxOffset(queue), "earliest_ms", producer.earliestMsgStoreTime(queue),
                    "at_time", arguments.has("time-ms")
                        ? producer.searchOffset(queue, arguments.longNumber("time-ms", 0)) : null);
            }
        } finally {
            producer.shutdown();
        }
    }

    /** The messages of --topic that carry --key (several keys with commas), stored in --begin-ms .. --end-ms. */
    static void byKey(Arguments arguments, Events events, Stop stop) throws Exception {
        DefaultMQProducer producer = Clients.producer(arguments);
        try {
            for (String key : arguments.list("key")) {
                QueryResult result = producer.queryMessage(arguments.text("topic"), key, arguments.number("max", 32),
                    arguments.longNumber("begin-ms", 0), arguments.longNumber("end-ms", Long.MAX_VALUE));
                result.getMessageList().forEach(events::message);
            }
        } finally {
            producer.shutdown();
        }
    }

    /** The message with --msg-id, an offset message id or the client's unique id. */
    static void view(Arguments arguments, Events events, Stop stop) throws Exception {
        DefaultMQProducer producer = Clients.producer(arguments);
        try {
            for (String msgId : arguments.list("msg-id")) {
                events.message(producer.viewMessage(arguments.text("topic"), msgId));
            }
        } finally {
            producer.shutdown();
        }
    }
}
