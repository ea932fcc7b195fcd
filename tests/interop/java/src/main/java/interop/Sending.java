package interop;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingException;

/**
 * {@code send-lines}: each line of --file becomes one message of --topic, in order. Options: --mode sync | async | oneway |
 * batch (--batch-size), --order-by-queue N (line n goes to queue n % N), --tags a,b (in turn), --keys PREFIX (key PREFIX-n),
 * --delay-level, --trace, --pause-ms between messages.
 */
final class Sending {
    private static final int ASYNC_AT_ONCE = 64;
    private static final int RETRY_PAUSE_MS = 200;

    private Sending() {
    }

    static void sendLines(Arguments arguments, Events events, Stop stop) throws Exception {
        DefaultMQProducer producer = Clients.producer(arguments);
        try {
            List<Message> messages = messages(arguments);
            switch (arguments.text("mode", "sync")) {
                case "sync" -> sync(producer, messages, arguments, events, stop);
                case "async" -> async(producer, messages, arguments, events);
                case "oneway" -> oneway(producer, messages, arguments, events);
                case "batch" -> batch(producer, messages, arguments, events);
                default -> throw new IllegalArgumentException("no mode " + arguments.text("mode"));
            }
        } finally {
            producer.shutdown();
        }
    }

    static List<Message> messages(Arguments arguments) throws Exception {
        List<String> tags = arguments.list("tags");
        List<Message> messages = new ArrayList<>();
        for (byte[] line : arguments.lines()) {
            int number = messages.size();
            Message message = new Message(arguments.text("topic"), line);
            message.putUserProperty("line", String.valueOf(number));
            message.setKeys(arguments.text("keys", "key") + "-" + number);
            if (!tags.isEmpty()) {
                message.setTags(tags.get(number % tags.size()));
            }
            if (arguments.has("delay-level")) {
                message.setDelayTimeLevel(arguments.number("delay-level", 0));
            }
            messages.add(message);
        }
        return messages;
    }

    private static MessageQueue queueOf(List<MessageQueue> queues, int number, Arguments arguments) {
        int wanted = number % arguments.number("order-by-queue", 1);
        return queues.stream().filter(queue -> queue.getQueueId() == wanted).findFirst().orElseThrow();
    }

    /** The reason of a failure is an event too: with --keep-going the same line is tried again, or skipped when refused. */
    private static void sync(DefaultMQProducer producer, List<Message> messages, Arguments arguments, Events events,
        Stop stop) throws Exception {
        for (int i = 0; i < messages.size() && !stop.isSet(); i++) {
            int number = i;
            try {
                SendResult result = arguments.has("order-by-queue")
                    ? producer.send(messages.get(i), (queues, m, x) -> queueOf(queues, number, arguments), null)
                    : producer.send(messages.get(i));
                events.sent(i, result);
            } catch (MQBrokerException e) {
                events.emit("refused", "line", i, "code", e.getResponseCode(), "remark", e.getErrorMessage());
                if (!arguments.flag("keep-going")) {
                    throw e;
                }
            } catch (RemotingException | MQClientException e) {
                events.emit("send_failed", "line", i, "error", e.toString(), "cause", String.valueOf(e.getCause()));
                if (!arguments.flag("keep-going")) {
                    throw e;
                }
                i--;
                stop.await(RETRY_PAUSE_MS);
            }
            stop.await(arguments.longNumber("pause-ms", 0));
        }
    }

    private static void async(DefaultMQProducer producer, List<Message> messages, Arguments arguments, Events events)
        throws Exception {
        Semaphore room = new Semaphore(ASYNC_AT_ONCE);
        for (int i = 0; i < messages.size(); i++) {
            int number = i;
            SendCallback callback = new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    events.sent(number, result);
                    room.release();
                }

                @Override
                public void onException(Throwable e) {
                    events.emit("send_failed", "line", number, "error", e.toString());
                    room.release();
                }
            };
            room.acquire();
            if (arguments.has("order-by-queue")) {
                producer.send(messages.get(i), (queues, m, x) -> queueOf(queues, number, arguments), null, callback);
            } else {
                producer.send(messages.get(i), callback);
            }
        }
        room.acquire(ASYNC_AT_ONCE);
    }

    private static void oneway(DefaultMQProducer producer, List<Message> messages, Arguments arguments, Events events)
        throws Exception {
        for (int i = 0; i < messages.size(); i++) {
            int number = i;
            if (arguments.has("order-by-queue")) {
                producer.sendOneway(messages.get(i), (queues, m, x) -> queueOf(queues, number, arguments), null);
            } else {
                producer.sendOneway(messages.get(i));
            }
            events.emit("sent", "line", i);
        }
    }

    private static void batch(DefaultMQProducer producer, List<Message> messages, Arguments arguments, Events events)
        throws Exception {
        int size = arguments.number("batch-size", 32);
        for (int begin = 0; begin < messages.size(); begin += size) {
            List<Message> part = messages.subList(begin, Math.min(begin + size, messages.size()));
            events.sent(begin, producer.send(part));
        }
    }
}
