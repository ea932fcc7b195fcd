package interop;

import java.util.List;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * {@code transaction}: each line of --file as a transactional message; --decide commit,rollback,unknown answers in turn, --check
 * does so when the broker asks. It stays up for the broker's questions until it is stopped.
 */
final class Transactions {
    private Transactions() {
    }

    static void send(Arguments arguments, Events events, Stop stop) throws Exception {
        List<String> decisions = arguments.list("decide");
        List<String> checks = arguments.list("check");
        TransactionMQProducer producer = Clients.configure(
            new TransactionMQProducer(arguments.text("group"), Clients.signature(arguments)), arguments);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return state(decisions, (Integer) argument);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                int line = Integer.parseInt(message.getUserProperty("line"));
                LocalTransactionState state = state(checks, line);
                events.emit("checked", "line", line, "state", state.name(), "msg_id", message.getMsgId(),
                    "transaction_id", message.getTransactionId());
                return state;
            }
        });
        producer.start();
        try {
            List<Message> messages = Sending.messages(arguments);
            for (int i = 0; i < messages.size(); i++) {
                events.sent(i, producer.sendMessageInTransaction(messages.get(i), i));
            }
            events.emit("all_sent");
            stop.await();
        } finally {
            producer.shutdown();
        }
    }

    private static LocalTransactionState state(List<String> decisions, int line) {
        return switch (decisions.isEmpty() ? "unknown" : decisions.get(line % decisions.size())) {
            case "commit" -> LocalTransactionState.COMMIT_MESSAGE;
            case "rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
            default -> LocalTransactionState.UNKNOW;
        };
    }
}
