package reput.interop;

import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;

/** Messages with a time, and recalls of them. */
final class Timers {
    private Timers() {}

    /** topic, ms from now by body: send a message for each; for each body the status, the recall handle and the time (ms). */
    static Object send(JsonObject arguments) throws Exception {
        DefaultMQProducer producer = producer(arguments);
        try {
            Map<String, List<Object>> told = new HashMap<>();
            JsonObject waits = arguments.get("waits").getAsJsonObject();
            long now = System.currentTimeMillis();
            for (String body : waits.keySet()) {
                Message message = new Message(arguments.get("topic").getAsString(), body.getBytes(StandardCharsets.UTF_8));
                long time = now + waits.get(body).getAsLong();
                MessageAccessor.putProperty(message, "TIMER_DELIVER_MS", String.valueOf(time));
                SendResult result = producer.send(message);
                List<Object> one = new ArrayList<>();
                one.add(result.getSendStatus().name());
                one.add(SendResult.class.getMethod("getRecallHandle").invoke(result));   // 5.3.3 has it, 4.9.7 does not
                one.add(time);
                told.put(body, one);
            }
            return told;
        } finally {
            producer.shutdown();
        }
    }

    /** topic, handle: recall a message; its unique key. */
    static Object recall(JsonObject arguments) throws Exception {
        DefaultMQProducer producer = producer(arguments);
        try {
            return DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                .invoke(producer, arguments.get("topic").getAsString(), arguments.get("handle").getAsString());
        } finally {
            producer.shutdown();
        }
    }

    private static DefaultMQProducer producer(JsonObject arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("producers");
        producer.setNamesrvAddr(arguments.get("namesrv").getAsString());
        producer.setVipChannelEnabled(false);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        return producer;
    }
}
