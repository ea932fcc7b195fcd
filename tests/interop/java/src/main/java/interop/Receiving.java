package interop;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.exception.RemotingTimeoutException;

/**
 * {@code receive}: a consumer of --topic in --group; each message becomes an event, until it is stopped or --expect have come.
 * Options: --mode push | orderly | broadcast | lite, --tags EXPRESSION or --sql EXPRESSION, --from first | last, --refuse TEXT
 * (answer RECONSUME_LATER to bodies that contain it), --max-reconsume, --retry-delay-level, --trace, --pull-batch,
 * --pop-invisible-ms (client 5: the broker assigns queues, in the mode of the group, PULL or POP).
 */
final class Receiving {
    private final Arguments arguments;
    private final Events events;
    private final Stop stop;
    private final AtomicInteger count = new AtomicInteger();

    private Receiving(Arguments arguments, Events events, Stop stop) {
        this.arguments = arguments;
        this.events = events;
        this.stop = stop;
    }

    static void receive(Arguments arguments, Events events, Stop stop) throws Exception {
        Receiving receiving = new Receiving(arguments, events, stop);
        if (arguments.text("mode", "push").equals("lite")) {
            receiving.lite();
        } else {
            receiving.push();
        }
    }

    private boolean accept(MessageExt message) {
        boolean refused = arguments.has("refuse")
            && new String(message.getBody(), StandardCharsets.UTF_8).contains(arguments.text("refuse"));
        events.message(message);
        if (count.incrementAndGet() == arguments.number("expect", Integer.MAX_VALUE)) {
            stop.set();
        }
        return !refused;
    }

    private void push() throws Exception {
        DefaultMQPushConsumer consumer = startedPushConsumer();
        events.emit("started", "client_id", consumer.buildMQClientId());
        try {
            stop.await();
        } finally {
            consumer.shutdown();
        }
    }

    /** A start asks for the route once, and waits three seconds: on a busy machine that is not always enough. */
    private DefaultMQPushConsumer startedPushConsumer() throws Exception {
        for (int tries = 1; ; tries++) {
            DefaultMQPushConsumer consumer = pushConsumer();
            try {
                consumer.start();
                return consumer;
            } catch (IllegalStateException error) {
                consumer.shutdown();
                if (tries == 3 || !(error.getCause() instanceof RemotingTimeoutException)) {
                    throw error;
                }
            }
        }
    }

    private DefaultMQPushConsumer pushConsumer() throws Exception {
        DefaultMQPushConsumer consumer = Clients.configure(
            new DefaultMQPushConsumer(arguments.text("group"), Clients.signature(arguments), new AllocateMessageQueueAveragely(),
                arguments.flag("trace"), null), arguments);
        consumer.setConsumeFromWhere(arguments.text("from", "first").equals("first")
            ? ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET : ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.setConsumeThreadMin(arguments.number("threads", 4));
        consumer.setConsumeThreadMax(arguments.number("threads", 4));
        consumer.setMaxReconsumeTimes(arguments.number("max-reconsume", -1));
        consumer.setPullBatchSize(arguments.number("pull-batch", 32));
        consumer.setConsumeMessageBatchMaxSize(arguments.number("consume-batch", 1));
        if (arguments.has("pop-invisible-ms")) {
            long invisible = arguments.number("pop-invisible-ms", 0);
            DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
            DefaultMQPushConsumer.class.getMethod("setPopInvisibleTime", long.class).invoke(consumer, invisible);
        }
        if (arguments.has("sql")) {
            consumer.subscribe(arguments.text("topic"), MessageSelector.bySql(arguments.text("sql")));
        } else {
            consumer.subscribe(arguments.text("topic"), arguments.text("tags", "*"));
        }
        switch (arguments.text("mode", "push")) {
            case "orderly" -> consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                context.setSuspendCurrentQueueTimeMillis(500);
                return messages.stream().allMatch(this::accept)
                    ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            });
            case "push", "broadcast" -> {
                if (arguments.text("mode", "push").equals("broadcast")) {
                    Clients.setMessageModel(consumer, "BROADCASTING");
                }
                consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                    context.setDelayLevelWhenNextConsume(arguments.number("retry-delay-level", 0));
                    return messages.stream().allMatch(this::accept)
                        ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
                });
            }
            default -> throw new IllegalArgumentException("no mode " + arguments.text("mode"));
        }
        return consumer;
    }

    private void lite() throws Exception {
        DefaultLitePullConsumer consumer =
            Clients.configure(new DefaultLitePullConsumer(arguments.text("group")), arguments);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(arguments.number("pull-batch", 32));
        consumer.subscribe(arguments.text("topic"), arguments.text("tags", "*"));
        consumer.start();
        events.emit("started", "client_id", consumer.buildMQClientId());
        try {
            while (!stop.isSet()) {
                List<MessageExt> messages = consumer.poll(200);
                messages.forEach(this::accept);
            }
            consumer.commitSync();
        } finally {
            consumer.shutdown();
        }
    }
}
