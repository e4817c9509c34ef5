package reput.interop;

import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
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

/** Clients that a broker asks something: a consumer that runs between commands, and a producer that waits for a reply. */
final class ClientCalls {
    private static final long MOST_S = 60;
    private static final long LOOK_MILLIS = 50;
    private static final LinkedBlockingQueue<String> got = new LinkedBlockingQueue<>();
    private static DefaultMQPushConsumer consumer;

    private ClientCalls() {}

    private static DefaultMQPushConsumer consumer(String namesrv, String group, String topic, MessageListenerConcurrently listener)
            throws Exception {
        DefaultMQPushConsumer made = new DefaultMQPushConsumer(group);
        made.setNamesrvAddr(namesrv);
        made.setVipChannelEnabled(false);
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        made.setHeartbeatBrokerInterval(2000);   // 5.x clients race at their start, see Clients.push
        made.subscribe(topic, "*");
        made.registerMessageListener(listener);
        made.start();
        return made;
    }

    /** group, topic: a consumer that goes on until consumer-stop; its client id. */
    static Object start(JsonObject arguments) throws Exception {
        got.clear();
        consumer = consumer(
            arguments.get("namesrv").getAsString(), arguments.get("group").getAsString(), arguments.get("topic").getAsString(),
            (messages, context) -> {
                for (MessageExt message : messages) got.add(new String(message.getBody(), StandardCharsets.UTF_8));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        return consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
    }

    /** The next body that the consumer gets. While none comes, it does not sleep amid a reset of its offsets, for ten seconds. */
    static Object take(JsonObject arguments) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(MOST_S);
        while (System.nanoTime() < end) {
            String body = got.poll(LOOK_MILLIS, TimeUnit.MILLISECONDS);
            if (body != null) return body;
            wakeFromReset();
        }
        throw new IllegalStateException("no message came in " + MOST_S + " s");
    }

    private static void wakeFromReset() {
        for (Map.Entry<Thread, StackTraceElement[]> one : Thread.getAllStackTraces().entrySet()) {
            StackTraceElement[] frames = one.getValue();
            if (frames.length == 0 || !frames[0].getMethodName().startsWith("sleep")) continue;
            if (Arrays.stream(frames).anyMatch(frame -> frame.getMethodName().equals("resetOffset"))) one.getKey().interrupt();
        }
    }

    static Object stop(JsonObject arguments) {
        consumer.shutdown();
        return null;
    }

    /** topic, body: what a producer gets that asks, of a consumer that answers: body and properties. */
    static Object request(JsonObject arguments) throws Exception {
        String namesrv = arguments.get("namesrv").getAsString(), topic = arguments.get("topic").getAsString();
        DefaultMQProducer replier = new DefaultMQProducer("repliers");
        DefaultMQProducer asker = new DefaultMQProducer("askers");
        asker.setInstanceName("asker");   // a client of its own
        for (DefaultMQProducer producer : new DefaultMQProducer[] {replier, asker}) {
            producer.setNamesrvAddr(namesrv);
            producer.setVipChannelEnabled(false);
            producer.setSendMsgTimeout(30_000);
            producer.start();
        }
        DefaultMQPushConsumer answering = consumer(namesrv, "answering", topic, (messages, context) -> {
            try {
                for (MessageExt message : messages) {
                    byte[] body = ("re: " + new String(message.getBody(), StandardCharsets.UTF_8)).getBytes(StandardCharsets.UTF_8);
                    replier.send(MessageUtil.createReplyMessage(message, body));
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        });
        try {
            byte[] body = arguments.get("body").getAsString().getBytes(StandardCharsets.UTF_8);
            // Not the request that waits: in 5.x it gives up as soon as the question is stored (`acquireCountDownLatch`).
            LinkedBlockingQueue<Object> answers = new LinkedBlockingQueue<>();
            asker.request(new Message(topic, body), new RequestCallback() {
                @Override
                public void onSuccess(Message reply) {
                    if (reply != null) answers.add(reply);   // 5.x calls it with null once the question is stored
                }

                @Override
                public void onException(Throwable error) {
                    answers.add(error);
                }
            }, TimeUnit.SECONDS.toMillis(MOST_S));
            Object answer = answers.poll(MOST_S, TimeUnit.SECONDS);
            if (!(answer instanceof Message)) throw new IllegalStateException("no reply: " + answer);
            Message reply = (Message) answer;
            Map<String, Object> told = new LinkedHashMap<>();
            told.put("body", new String(reply.getBody(), StandardCharsets.UTF_8));
            told.put("properties", reply.getProperties());
            return told;
        } finally {
            answering.shutdown();
            asker.shutdown();
            replier.shutdown();
        }
    }
}
