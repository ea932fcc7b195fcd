package interop;

import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageQueue;

/** {@code pull}: reads each queue of --topic (or only --queue) from its first message (or --offset) to its end. */
@SuppressWarnings("deprecation")
final class Pulling {
    private Pulling() {
    }

    static void pull(Arguments arguments, Events events, Stop stop) throws Exception {
        DefaultMQPullConsumer consumer =
            Clients.configure(new DefaultMQPullConsumer(arguments.text("group")), arguments);
        consumer.start();
        try {
            List<MessageQueue> queues = consumer.fetchSubscribeMessageQueues(arguments.text("topic")).stream()
                .filter(queue -> !arguments.has("queue") || queue.getQueueId() == arguments.number("queue", 0))
                .sorted().toList();
            for (MessageQueue queue : queues) {
                long queueOffset = arguments.longNumber("offset", consumer.minOffset(queue));
                pullToTheEnd(consumer, queue, queueOffset, arguments, events);
            }
        } finally {
            consumer.shutdown();
        }
    }

    private static void pullToTheEnd(DefaultMQPullConsumer consumer, MessageQueue queue, long queueOffset,
        Arguments arguments, Events events) throws Exception {
        PullResult result;
        do {
            result = consumer.pull(queue, arguments.text("tags", "*"), queueOffset, arguments.number("pull-batch", 32));
            events.emit("pulled", "queue", queue.getQueueId(), "status", result.getPullStatus().name(),
                "next_offset", result.getNextBeginOffset(), "min_offset", result.getMinOffset(),
                "max_offset", result.getMaxOffset());
            if (result.getPullStatus() == PullStatus.FOUND) {
                result.getMsgFoundList().forEach(events::message);
            }
            queueOffset = result.getNextBeginOffset();
        } while (queueOffset < result.getMaxOffset());
    }
}
