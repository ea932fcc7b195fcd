import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Scanner;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The clients of java_catch_up.py, a virtual machine each: {@code CatchUp produce NAMESRV TOPIC THREADS BYTES} and
 * {@code CatchUp consume NAMESRV TOPIC}. They read commands from stdin, and answer each with a line.
 *
 * <p>A producer: {@code fill MESSAGES} in batches of 32, and {@code measure SECONDS}, answered with the messages a second and
 * the microseconds of the median, the 99th and the 99.9th percentile. A consumer: {@code count}, answered with the messages
 * that have come.
 */
public final class CatchUp {
    private static final int BATCH = 32;

    private CatchUp() {
    }

    public static void main(String[] words) throws Exception {
        if (words[0].equals("produce")) {
            produce(words[1], words[2], Integer.parseInt(words[3]), new byte[Integer.parseInt(words[4])]);
        } else {
            consume(words[1], words[2]);
        }
        Runtime.getRuntime().halt(0);
    }

    private static void produce(String nameServer, String topic, int threads, byte[] body) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("catch_up_producer");
        producer.setNamesrvAddr(nameServer);
        producer.start();
        answer("ready");
        Scanner input = new Scanner(System.in, StandardCharsets.UTF_8);
        while (input.hasNext()) {
            String command = input.next();
            if (command.equals("fill")) {
                answer(fill(producer, topic, body, input.nextLong()));
            } else {
                answer(measure(producer, topic, threads, body, input.nextLong()));
            }
        }
    }

    private static String fill(DefaultMQProducer producer, String topic, byte[] body, long messages) throws Exception {
        AtomicLong left = new AtomicLong(messages);
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(topic);
        run(4, () -> {
            while (left.getAndAdd(-BATCH) > 0) {
                List<Message> batch = new ArrayList<>(BATCH);
                for (int i = 0; i < BATCH; i++) {
                    batch.add(new Message(topic, body));
                }
                producer.send(batch, queues.get(ThreadLocalRandom.current().nextInt(queues.size())));
            }
        });
        return "filled";
    }

    private static String measure(DefaultMQProducer producer, String topic, int threads, byte[] body, long seconds)
        throws Exception {
        long until = System.nanoTime() + seconds * 1_000_000_000L;
        List<long[]> all = new ArrayList<>();
        run(threads, () -> {
            long[] took = new long[1 << 12];
            int count = 0;
            for (long began = System.nanoTime(); began < until; ) {
                producer.send(new Message(topic, body));
                long ended = System.nanoTime();
                if (count == took.length) {
                    took = Arrays.copyOf(took, 2 * count);
                }
                took[count++] = ended - began;
                began = ended;
            }
            synchronized (all) {
                all.add(Arrays.copyOf(took, count));
            }
        });
        long[] sorted = all.stream().flatMapToLong(Arrays::stream).sorted().toArray();
        StringBuilder line = new StringBuilder().append(sorted.length / seconds);
        for (double part : new double[] {0.5, 0.99, 0.999}) {
            line.append(' ').append(sorted[(int) (part * (sorted.length - 1))] / 1000);
        }
        return line.toString();
    }

    private interface Work {
        void run() throws Exception;
    }

    private static void run(int threads, Work work) throws InterruptedException {
        List<Thread> all = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            Thread thread = new Thread(() -> {
                try {
                    work.run();
                } catch (Exception e) {
                    e.printStackTrace();
                    Runtime.getRuntime().halt(1);
                }
            });
            thread.start();
            all.add(thread);
        }
        for (Thread thread : all) {
            thread.join();
        }
    }

    private static void consume(String nameServer, String topic) throws Exception {
        AtomicLong count = new AtomicLong();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("catch_up_consumer");
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            count.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        while (count.get() == 0) {
            LockSupport.parkNanos(10_000_000);
        }
        answer("ready");
        Scanner input = new Scanner(System.in, StandardCharsets.UTF_8);
        while (input.hasNext()) {
            input.next();
            answer(String.valueOf(count.get()));
        }
    }

    private static void answer(String line) {
        System.out.println(line);
    }
}
