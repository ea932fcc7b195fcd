import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** A producer, a push consumer and a simple consumer. Each line of standard input is a prefix: one message of each kind is sent. */
public class Driver {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static Producer producer;
    private static String topic;

    public static void main(String[] arguments) throws Exception {
        topic = arguments[1];
        ClientConfiguration configuration = ClientConfiguration.newBuilder()
                .setEndpoints(arguments[0]).setRequestTimeout(Duration.ofSeconds(5)).build();
        producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic)
                .setTransactionChecker(message -> {
                    tell("asked " + text(message));
                    return TransactionResolution.COMMIT;
                }).build();
        Map<String, FilterExpression> all = Map.of(topic, FilterExpression.SUB_ALL);
        PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
                .setConsumerGroup(arguments[2] + "_push").setSubscriptionExpressions(all)
                .setMessageListener(message -> {
                    tell("push " + text(message) + " " + message.getDeliveryAttempt());
                    boolean fails = text(message).endsWith("keyed") && message.getDeliveryAttempt() == 1;
                    return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
                }).build();
        SimpleConsumer simple = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
                .setConsumerGroup(arguments[2] + "_simple").setSubscriptionExpressions(all)
                .setAwaitDuration(Duration.ofSeconds(5)).build();
        Thread receiving = new Thread(() -> receive(simple));
        receiving.setDaemon(true);
        receiving.start();
        tell("started");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String prefix = lines.readLine(); prefix != null; prefix = lines.readLine()) {
            sendAll(prefix);
            tell("sent " + prefix);
        }
        System.exit(0);
    }

    private static void receive(SimpleConsumer consumer) {
        while (true) {
            try {
                for (MessageView message : consumer.receive(16, Duration.ofSeconds(15))) {
                    consumer.ack(message);
                    tell("simple " + text(message) + " " + message.getDeliveryAttempt());
                }
            } catch (Exception error) {
                tell("again " + error.getClass().getSimpleName());
                try {
                    Thread.sleep(200);
                } catch (InterruptedException interrupted) {
                    return;
                }
            }
        }
    }

    /** The client waits for no connection, so what it sends right after a start of the broker fails. */
    private static void sendWhenConnected(String body) throws Exception {
        for (int left = 100; ; left--) {
            try {
                producer.send(message(body).build());
                return;
            } catch (ClientException | RuntimeException error) {
                if (left == 0) {
                    throw error;
                }
                Thread.sleep(200);
            }
        }
    }

    private static void sendAll(String prefix) throws Exception {
        sendWhenConnected(prefix + "-normal");
        producer.send(message(prefix + "-keyed").setTag("blue").setKeys("k1", "k2").addProperty("color", "red").build());
        producer.send(message(prefix + "-fifo").setMessageGroup("g").build());
        long soon = System.currentTimeMillis() + 900;
        producer.send(message(prefix + "-delayed").setDeliveryTimestamp(soon).build());
        for (String end : new String[] {"commit", "rollback", "orphan"}) {
            Transaction transaction = producer.beginTransaction();
            producer.send(message(prefix + "-" + end).build(), transaction);
            if (end.equals("commit")) {
                transaction.commit();
            } else if (end.equals("rollback")) {
                transaction.rollback();
            }
        }
    }

    private static MessageBuilder message(String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    private static String text(MessageView message) {
        ByteBuffer body = message.getBody();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8).strip();
    }

    private static synchronized void tell(String line) {
        System.out.println(line);
    }
}
