package reput.interop;

import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A producer and a consumer of a topic over several brokers, which send and consume while brokers come and go. */
final class Failover {
    private static final int INTERVAL_MS = 1_000;
    private static final long MOST_MS = 90_000;

    private static final Map<String, String> acknowledged = new ConcurrentHashMap<>();   // the broker, by body
    private static final Map<String, Integer> consumed = new ConcurrentHashMap<>();   // how often, by body
    private static final AtomicLong failed = new AtomicLong();
    private static volatile boolean isSending;
    private static Thread sender;
    private static DefaultMQProducer producer;
    private static DefaultMQPushConsumer consumer;

    private Failover() {}

    /** topic: begins to send, a message every few milliseconds, and to consume. */
    static Object start(JsonObject arguments) throws Exception {
        String namesrv = arguments.get("namesrv").getAsString(), topic = arguments.get("topic").getAsString();
        acknowledged.clear();
        consumed.clear();
        failed.set(0);
        consumer = new DefaultMQPushConsumer("failover");
        consumer.setNamesrvAddr(namesrv);
        consumer.setVipChannelEnabled(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setHeartbeatBrokerInterval(INTERVAL_MS);
        consumer.setPollNameServerInterval(INTERVAL_MS);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) consumed.merge(new String(message.getBody(), StandardCharsets.UTF_8), 1, Integer::sum);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        producer = new DefaultMQProducer("failover-producers");
        producer.setInstanceName("failover-producer");
        producer.setNamesrvAddr(namesrv);
        producer.setVipChannelEnabled(false);
        producer.setHeartbeatBrokerInterval(INTERVAL_MS);
        producer.setPollNameServerInterval(INTERVAL_MS);
        producer.start();
        isSending = true;
        sender = new Thread(() -> {
            for (int number = 0; isSending; number++) send(topic, "message-" + number);
        });
        sender.start();
        return null;
    }

    private static void send(String topic, String body) {
        try {
            SendResult result = producer.send(new Message(topic, body.getBytes(StandardCharsets.UTF_8)));
            if (result.getSendStatus() == SendStatus.SEND_OK) acknowledged.put(body, result.getMessageQueue().getBrokerName());
            else failed.incrementAndGet();
            Thread.sleep(2);
        } catch (Exception e) {
            failed.incrementAndGet();
        }
    }

    /** How many messages each broker has acknowledged so far, and how many were consumed; a moment after the last look. */
    static Object look(JsonObject arguments) throws Exception {
        Thread.sleep(50);
        Map<String, Object> told = new LinkedHashMap<>();
        Map<String, Integer> brokers = new LinkedHashMap<>();
        for (String broker : acknowledged.values()) brokers.merge(broker, 1, Integer::sum);
        told.put("brokers", brokers);
        told.put("consumed", consumed.size());
        told.put("failed", failed.get());
        return told;
    }

    /** Sends nothing more, and waits for all that was acknowledged; which messages of these have not come. */
    static Object stop(JsonObject arguments) throws Exception {
        isSending = false;
        sender.join();
        long end = System.currentTimeMillis() + MOST_MS;
        List<String> missing;
        do {
            Thread.sleep(100);
            missing = new ArrayList<>(acknowledged.keySet());
            missing.removeAll(consumed.keySet());
        } while (!missing.isEmpty() && System.currentTimeMillis() < end);
        producer.shutdown();
        consumer.shutdown();
        return missing;
    }
}
