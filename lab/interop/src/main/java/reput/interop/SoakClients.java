package reput.interop;

import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * What unmodified Java programs do to a broker in a soak (campaign/soak): they send and consume for as long as they live,
 * whether the broker is there or not. Arguments: a file, to which what they see goes line by line (campaign/soak/telling.py);
 * where the name server is; messages a second; a name, with which all keys begin. They stop sending when the input ends.
 */
public final class SoakClients {
    private static final String TOPIC = "soaked";
    private static final int LARGE_BODY = 40_000;   // as campaign/soak/load.py
    private static final int BATCH = 10;
    private static final int AT_ONCE = 50;
    private static final int INTERVAL_MS = 2_000;
    private static final double KINDS_SHARE = 0.05;   // of the rate, a kind
    private static final int LIFE_OF_A_MEMBER_MS = 20_000;
    private static final int MOST_MS_WITHOUT_INPUT = 600_000;

    private final FileOutputStream told;
    private final String namesrv;
    private final String name;
    private final double rate;
    private final Map<String, AtomicLong> counts = new ConcurrentHashMap<>();
    private final Map<Integer, Long> nextOffsets = new ConcurrentHashMap<>();
    private volatile boolean isSending = true;

    private SoakClients(String[] words) throws IOException {
        told = new FileOutputStream(words[0], true);
        namesrv = words[1];
        rate = Double.parseDouble(words[2]);
        name = words[3];
    }

    interface Work {
        void run() throws Exception;
    }

    synchronized void tell(String line) {
        try {
            told.write((line + "\n").getBytes(StandardCharsets.UTF_8));   // in one write, which no kill takes back
        } catch (IOException e) {
            Runtime.getRuntime().halt(1);
        }
    }

    void fail(String reason) {
        tell("failed " + reason.replaceAll("\\s+", " "));
        Runtime.getRuntime().halt(1);
    }

    void count(String what, long count) {
        counts.computeIfAbsent(what, ignored -> new AtomicLong()).addAndGet(count);
    }

    void start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception e) {
                fail(e.toString());
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    /** body_of in campaign/soak/load.py. */
    static byte[] bodyOf(String key) {
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(key.getBytes(StandardCharsets.UTF_8));
            byte[] body = new byte[digest[0] == 0 ? LARGE_BODY : 1 + ((digest[1] & 0xFF) << 8 | digest[2] & 0xFF) % 1000];
            for (int position = 0; position < body.length; position++) body[position] = digest[position % digest.length];
            return body;
        } catch (java.security.NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }

    // -- producers

    DefaultMQProducer producer(String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        start(producer);
        return producer;
    }

    void start(DefaultMQProducer producer) throws Exception {
        producer.setNamesrvAddr(namesrv);
        producer.setVipChannelEnabled(false);
        producer.setHeartbeatBrokerInterval(INTERVAL_MS);
        producer.setPollNameServerInterval(INTERVAL_MS);
        producer.setRetryTimesWhenSendFailed(0);   // what is sent again is there twice, if only its answer was lost
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.start();
    }

    boolean isSending() {
        return isSending;
    }

    private static Message message(String key) {
        return new Message(TOPIC, "tag", key, bodyOf(key));
    }

    private void answered(SendResult result, List<String> keys) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            count("sends answered " + result.getSendStatus(), 1);
            return;
        }
        String[] ids = result.getOffsetMsgId().split(",");
        if (ids.length != keys.size()) fail(ids.length + " ids for " + keys);
        for (int i = 0; i < ids.length; i++) {
            try {
                tell("acknowledged " + MessageDecoder.decodeMessageId(ids[i]).getOffset() + " " + TOPIC + " "
                    + result.getMessageQueue().getQueueId() + " " + (result.getQueueOffset() + i) + " " + keys.get(i));
            } catch (Exception e) {
                fail(ids[i] + ": " + e);
            }
        }
    }

    void failed(Throwable error) {
        count("sends failed", 1);   // the broker is being killed, or is not there
    }

    /** One by one; a share of all messages. */
    private void sendSingle(int thread, double share) throws Exception {
        DefaultMQProducer producer = producer("single-" + thread);
        for (long number = 0; isSending; number++) {
            String key = name + "-s" + thread + "-" + number;
            try {
                answered(producer.send(message(key)), Arrays.asList(key));
            } catch (Exception e) {
                failed(e);
            }
            Thread.sleep((long) (1000 / (share * rate)));
        }
    }

    private void sendAsync(double share) throws Exception {
        DefaultMQProducer producer = producer("async");
        Semaphore free = new Semaphore(AT_ONCE);
        for (long number = 0; isSending; number++) {
            String key = name + "-a-" + number;
            free.acquire();
            SendCallback callback = new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    free.release();
                    answered(result, Arrays.asList(key));
                }

                @Override
                public void onException(Throwable error) {
                    free.release();
                    failed(error);
                }
            };
            try {
                producer.send(message(key), callback);
            } catch (Exception e) {
                callback.onException(e);
            }
            Thread.sleep((long) (1000 / (share * rate)));
        }
    }

    private void sendBatches(double share) throws Exception {
        DefaultMQProducer producer = producer("batches");
        for (long number = 0; isSending; number++) {
            List<String> keys = new ArrayList<>();
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < BATCH; i++) {
                keys.add(name + "-b-" + number + "-" + i);
                batch.add(message(keys.get(i)));
            }
            try {
                answered(producer.send(batch), keys);
            } catch (Exception e) {
                failed(e);
            }
            Thread.sleep((long) (1000 * BATCH / (share * rate)));
        }
    }

    // -- consumers

    /** Makes and starts a consumer; again and again, where the broker is not there for its start. */
    DefaultMQPushConsumer started(String group, String member, String topic, Consumer<DefaultMQPushConsumer> listen)
            throws Exception {
        while (true) {
            DefaultMQPushConsumer consumer = consumer(group, member, topic);
            listen.accept(consumer);
            try {
                consumer.start();
                return consumer;
            } catch (Exception e) {
                count("consumers that had no broker at their start", 1);
                consumer.shutdown();
                Thread.sleep(INTERVAL_MS);
            }
        }
    }

    private DefaultMQPushConsumer consumer(String group, String member, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(member);
        consumer.setVipChannelEnabled(false);
        consumer.setHeartbeatBrokerInterval(INTERVAL_MS);
        consumer.setPollNameServerInterval(INTERVAL_MS);
        consumer.setPersistConsumerOffsetInterval(INTERVAL_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    void consumed(String group, MessageExt message) {
        String key = message.getKeys();
        if (!Arrays.equals(message.getBody(), bodyOf(key))) fail("the body of " + key + " is another one");
        tell("consumed " + group + " " + key);
        count("consumed by Java clients", 1);
    }

    private DefaultMQPushConsumer consumeConcurrently(String member) throws Exception {
        return started("concurrent", member, TOPIC, consumer ->
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) consumed("concurrent", message);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }));
    }

    /** Each queue in its order: offsets may go back, after a kill, and leave none out. */
    private void consumeOrderly() throws Exception {
        started("orderly", "orderly", TOPIC, consumer -> consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                long offset = message.getQueueOffset();
                long next = nextOffsets.getOrDefault(message.getQueueId(), offset);
                if (offset > next) fail("queue " + message.getQueueId() + ": " + offset + " comes, " + next + " is left out");
                nextOffsets.put(message.getQueueId(), Math.max(next, offset + 1));
                consumed("orderly", message);
            }
            return ConsumeOrderlyStatus.SUCCESS;
        }));
    }

    /** A second member of the group joins and leaves, again and again. */
    private void comeAndGo() throws Exception {
        for (int number = 0; true; number++) {
            DefaultMQPushConsumer consumer = consumeConcurrently("guest-" + number);
            Thread.sleep(LIFE_OF_A_MEMBER_MS);
            consumer.shutdown();
            count("members that came and went", 1);
            Thread.sleep(INTERVAL_MS);
        }
    }

    private void run() throws Exception {
        start(() -> consumeConcurrently("resident"));
        start(this::consumeOrderly);
        start(this::comeAndGo);
        for (int thread = 0; thread < 2; thread++) {
            int number = thread;
            start(() -> sendSingle(number, 0.2));
        }
        start(() -> sendAsync(0.3));
        start(() -> sendBatches(0.3));
        new SoakKinds(this, name, KINDS_SHARE * rate).start();
        tell("opened");
        start(() -> {
            while (System.in.read() >= 0) continue;
            isSending = false;
            Thread.sleep(MOST_MS_WITHOUT_INPUT);
            Runtime.getRuntime().halt(0);   // nobody is there any more
        });
        while (true) {
            Thread.sleep(1000);
            counts.forEach((what, count) -> {
                long told = count.getAndSet(0);
                if (told > 0) tell("count " + what + " " + told);
            });
        }
    }

    public static void main(String[] words) throws Exception {
        System.setOut(System.err);   // whatever a library prints
        new SoakClients(words).run();
    }
}
