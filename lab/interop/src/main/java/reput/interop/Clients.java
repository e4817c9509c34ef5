package reput.interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What an unmodified Java program does with a broker; namesrv says where one is found. Each client is shut down again. */
final class Clients {
    private static final long MOST_S = 30;

    private Clients() {}

    private static Message message(String topic, String body) {
        return new Message(topic, "tag-" + body.charAt(0), "key-" + body, body.getBytes(StandardCharsets.UTF_8));
    }

    private static Map<String, Object> told(SendResult result) {
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("status", result.getSendStatus().name());
        told.put("id", result.getMsgId());
        told.put("offset_id", result.getOffsetMsgId());
        told.put("queue_id", result.getMessageQueue().getQueueId());
        told.put("queue_offset", result.getQueueOffset());
        return told;
    }

    /** A busy machine may take long to answer a first send, which makes a topic. */
    private static final int SEND_TIMEOUT_MS = 30_000;

    /** topic, namespace (none without); one message each: sync, async, one-way; two in order by a selector; a batch of three. Results by their names. */
    static Object send(JsonObject arguments) throws Exception {
        String topic = arguments.get("topic").getAsString();
        DefaultMQProducer producer = new DefaultMQProducer("producers");
        producer.setNamesrvAddr(arguments.get("namesrv").getAsString());
        producer.setVipChannelEnabled(false);
        if (arguments.has("namespace")) producer.setNamespace(arguments.get("namespace").getAsString());
        producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
        producer.start();
        try {
            Map<String, Object> results = new LinkedHashMap<>();
            results.put("sync", told(producer.send(message(topic, "sync"))));
            CountDownLatch answered = new CountDownLatch(1);
            List<Object> async = Collections.synchronizedList(new ArrayList<>());
            producer.send(message(topic, "async"), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    async.add(told(result));
                    answered.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    async.add(error.toString());
                    answered.countDown();
                }
            });
            if (!answered.await(MOST_S, TimeUnit.SECONDS)) throw new IllegalStateException("no answer to the async send");
            results.put("async", async.get(0));
            for (int number = 0; number < 2; number++) {
                results.put("ordered-" + number, told(producer.send(
                    message(topic, "ordered-" + number), (queues, one, id) -> queues.get((Integer) id % queues.size()), 1)));
            }
            List<Message> batch = new ArrayList<>();
            for (int number = 0; number < 3; number++) batch.add(message(topic, "batch-" + number));
            results.put("batch", told(producer.send(batch)));
            producer.sendOneway(message(topic, "oneway"));
            results.put("large", told(producer.send(message(topic, "large" + String.join("", Collections.nCopies(9000, "x"))))));
            return results;
        } finally {
            producer.shutdown();
        }
    }

    private static Map<String, Object> told(MessageExt message) {
        Map<String, Object> told = new TreeMap<>();
        told.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
        told.put("tags", message.getTags());
        told.put("keys", message.getKeys());
        told.put("queue_id", message.getQueueId());
        told.put("queue_offset", message.getQueueOffset());
        return told;
    }

    /** topic, group, tags (an expression), count, namespace (none without): a push consumer that ends when it has so many messages. */
    static Object push(JsonObject arguments) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments.get("group").getAsString());
        consumer.setNamesrvAddr(arguments.get("namesrv").getAsString());
        consumer.setVipChannelEnabled(false);
        if (arguments.has("namespace")) consumer.setNamespace(arguments.get("namespace").getAsString());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAwaitTerminationMillisWhenShutdown(TimeUnit.SECONDS.toMillis(MOST_S));   // for the last message's offset
        // A 5.x client may pull before a heartbeat has told the broker its new subscription: 1 s after the start its first
        // rebalance and the heartbeat of its timer race. Until the next heartbeat, by default 30 s later, the broker answers
        // SUBSCRIPTION_NOT_LATEST.
        consumer.setHeartbeatBrokerInterval(2000);
        if (arguments.has("asks_broker")) {   // which queues are its own, and whether to pop; 4.9 has no such method
            DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        }
        consumer.subscribe(arguments.get("topic").getAsString(), arguments.get("tags").getAsString());
        LinkedBlockingQueue<Map<String, Object>> got = new LinkedBlockingQueue<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) got.add(told(message));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            return take(got, arguments.get("count").getAsInt());
        } finally {
            consumer.shutdown();   // which commits its offsets
        }
    }

    private static List<Map<String, Object>> take(LinkedBlockingQueue<Map<String, Object>> got, int count) throws Exception {
        List<Map<String, Object>> taken = new ArrayList<>();
        while (taken.size() < count) {
            Map<String, Object> one = got.poll(MOST_S, TimeUnit.SECONDS);
            if (one == null) throw new IllegalStateException(taken.size() + " of " + count + " messages came: " + taken);
            taken.add(one);
        }
        return taken;
    }

    /**
     * topic, group, count: a lite pull consumer that polls from the first offset until it has so many messages, and seeks
     * back and polls them again. A seek interrupts the thread that pulled its queue last, so none before all have come:
     * the thread may pull another queue by then, whose messages would be pulled and lost.
     */
    static Object lite(JsonObject arguments) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(arguments.get("group").getAsString());
        consumer.setNamesrvAddr(arguments.get("namesrv").getAsString());
        consumer.setVipChannelEnabled(false);
        consumer.setAutoCommit(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.start();
        try {
            String topic = arguments.get("topic").getAsString();
            List<MessageQueue> queues = new ArrayList<>(consumer.fetchMessageQueues(topic));
            consumer.assign(queues);
            int count = arguments.get("count").getAsInt();
            poll(consumer, count);
            for (MessageQueue queue : queues) consumer.seek(queue, 0);
            return poll(consumer, count);
        } finally {
            consumer.shutdown();
        }
    }

    private static List<Map<String, Object>> poll(DefaultLitePullConsumer consumer, int count) {
        List<Map<String, Object>> got = new ArrayList<>();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(MOST_S);
        while (got.size() < count) {
            if (System.nanoTime() > deadline) throw new IllegalStateException("only " + got + " came");
            for (MessageExt message : consumer.poll(500)) got.add(told(message));
        }
        return got;
    }

    /** topic, key, offset_id: what is found by key, and the message with the id. */
    static Object find(JsonObject arguments) throws Exception {
        DefaultMQProducer admin = new DefaultMQProducer("finders");
        admin.setNamesrvAddr(arguments.get("namesrv").getAsString());
        admin.setVipChannelEnabled(false);
        admin.start();
        try {
            String topic = arguments.get("topic").getAsString();
            admin.fetchPublishMessageQueues(topic);
            Map<String, Object> found = new LinkedHashMap<>();
            QueryResult result = admin.queryMessage(topic, arguments.get("key").getAsString(), 32, 0, Long.MAX_VALUE);
            List<Map<String, Object>> messages = new ArrayList<>();
            for (MessageExt message : result.getMessageList()) messages.add(told(message));
            found.put("by_key", messages);
            Map<String, Object> byId = new LinkedHashMap<>();
            for (JsonElement id : arguments.has("ids") ? arguments.getAsJsonArray("ids") : new JsonArray()) {
                byId.put(id.getAsString(), told(admin.viewMessage(topic, id.getAsString())));
            }
            found.put("by_id", byId);
            return found;
        } finally {
            admin.shutdown();
        }
    }
}
