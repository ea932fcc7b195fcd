package interop;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;

/** Prints what happens to one command, one JSON object a line. Any thread may call it; a line is never torn. */
final class Events {
    private final PrintStream out;
    private final String id;

    Events(PrintStream out, String id) {
        this.out = out;
        this.id = id;
    }

    void emit(String event, Object... namesAndValues) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("id", id);
        fields.put("event", event);
        for (int i = 0; i < namesAndValues.length; i += 2) {
            fields.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        StringBuilder line = new StringBuilder();
        Json.write(line, fields);
        line.append('\n');
        byte[] bytes = line.toString().getBytes(StandardCharsets.UTF_8);
        synchronized (out) {
            out.write(bytes, 0, bytes.length);
            out.flush();
        }
    }

    void sent(int line, SendResult result) {
        emit("sent", "line", line, "status", result.getSendStatus().name(),
            "broker", result.getMessageQueue().getBrokerName(), "queue", result.getMessageQueue().getQueueId(),
            "queue_offset", result.getQueueOffset(), "msg_id", result.getMsgId(),
            "offset_msg_id", result.getOffsetMsgId(), "transaction_id", result.getTransactionId());
    }

    void message(MessageExt message) {
        emit("message", describe(message));
    }

    static Object[] describe(MessageExt message) {
        return new Object[] {
            "topic", message.getTopic(), "broker", message.getBrokerName(), "queue", message.getQueueId(),
            "queue_offset", message.getQueueOffset(), "physical_offset", message.getCommitLogOffset(),
            "msg_id", message.getMsgId(), "tags", message.getTags(), "keys", message.getKeys(),
            "flag", message.getFlag(), "sys_flag", message.getSysFlag(), "reconsume_times", message.getReconsumeTimes(),
            "born_ms", message.getBornTimestamp(), "store_ms", message.getStoreTimestamp(),
            "properties", message.getProperties(), "body", Base64.getEncoder().encodeToString(message.getBody())};
    }
}
