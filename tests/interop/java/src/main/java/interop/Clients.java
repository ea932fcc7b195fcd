package interop;

import java.lang.reflect.Method;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.remoting.RPCHook;

/** What all clients of a command have in common: addresses, a name of their own, short periods. */
final class Clients {
    private static final AtomicInteger COUNT = new AtomicInteger();

    private Clients() {
    }

    /** Short periods let a client see a restarted broker soon; they are plain settings of the real client. */
    static <T extends ClientConfig> T configure(T client, Arguments arguments) {
        client.setNamesrvAddr(arguments.text("namesrv"));
        client.setInstanceName("i" + ProcessHandle.current().pid() + "-" + COUNT.incrementAndGet());
        client.setPollNameServerInterval(1000);
        client.setHeartbeatBrokerInterval(1000);
        client.setPersistConsumerOffsetInterval(500);
        return client;
    }

    /**
     * Signs requests for --access-key with --secret-key (AclClientRPCHook, in client 4 of rocketmq-acl); null, as without ACL,
     * when no key is given.
     */
    static RPCHook signature(Arguments arguments) throws ReflectiveOperationException {
        if (!arguments.has("access-key")) {
            return null;
        }
        Class<?> credentials = Class.forName("org.apache.rocketmq.acl.common.SessionCredentials");
        Object account = credentials.getConstructor(String.class, String.class)
            .newInstance(arguments.text("access-key"), arguments.text("secret-key"));
        return (RPCHook) Class.forName("org.apache.rocketmq.acl.common.AclClientRPCHook")
            .getConstructor(credentials).newInstance(account);
    }

    static DefaultMQProducer producer(Arguments arguments) throws Exception {
        DefaultMQProducer producer = configure(
            new DefaultMQProducer(arguments.text("group", "interop_producer"), signature(arguments), arguments.flag("trace"), null), arguments);
        producer.setRetryTimesWhenSendFailed(arguments.number("retries", 2));
        producer.setCompressMsgBodyOverHowmuch(arguments.number("compress-over", 4096));
        producer.setMaxMessageSize(arguments.number("max-message-size", 4 * 1024 * 1024));
        producer.setSendMsgTimeout(arguments.number("timeout-ms", 5000));
        producer.start();
        return producer;
    }

    /** The enumeration MessageModel moved to another package in client 5. */
    static void setMessageModel(DefaultMQPushConsumer consumer, String name) throws ReflectiveOperationException {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                for (Object constant : method.getParameterTypes()[0].getEnumConstants()) {
                    if (constant.toString().equals(name)) {
                        method.invoke(consumer, constant);
                        return;
                    }
                }
            }
        }
        throw new IllegalArgumentException("no message model " + name);
    }
}
