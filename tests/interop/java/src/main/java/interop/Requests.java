package interop;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Request and reply over --topic: {@code reply} answers "re: " and the text, {@code request} asks with each line of --file. */
final class Requests {
    private Requests() {
    }

    static void request(Arguments arguments, Events events, Stop stop) throws Exception {
        DefaultMQProducer producer = Clients.producer(arguments);
        try {
            for (byte[] line : arguments.lines()) {
                Message reply = ask(producer, new Message(arguments.text("topic"), line),
                    arguments.longNumber("request-timeout-ms", 10000));
                events.emit("reply", "body", java.util.Base64.getEncoder().encodeToString(reply.getBody()),
                    "properties", reply.getProperties());
            }
        } finally {
            producer.shutdown();
        }
    }

    /**
     * Through a callback, since in client 5.3 the call that waits returns nothing when the send's answer comes first. The
     * callback, too, is called with null then, and again with the reply.
     */
    private static Message ask(DefaultMQProducer producer, Message message, long timeoutMs) throws Exception {
        CompletableFuture<Message> answer = new CompletableFuture<>();
        producer.request(message, new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                if (reply != null) {
                    answer.complete(reply);
                }
            }

            @Override
            public void onException(Throwable e) {
                answer.completeExceptionally(e);
            }
        }, timeoutMs);
        return answer.get(timeoutMs + 5000, TimeUnit.MILLISECONDS);
    }

    static void reply(Arguments arguments, Events events, Stop stop) throws Exception {
        DefaultMQProducer producer = Clients.producer(arguments);
        DefaultMQPushConsumer consumer =
            Clients.configure(new DefaultMQPushConsumer(arguments.text("consumer-group")), arguments);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    byte[] text = Arguments.utf8("re: " + new String(message.getBody(), StandardCharsets.UTF_8));
                    events.message(message);
                    producer.send(MessageUtil.createReplyMessage(message, text), 3000);
                    events.emit("replied");
                } catch (Exception e) {
                    events.emit("reply_failed", "error", e.toString());
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        events.emit("started", "client_id", consumer.buildMQClientId());
        try {
            stop.await();
        } finally {
            consumer.shutdown();
            producer.shutdown();
        }
    }
}
