package reput.interop;

import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages with a delay level, and a consumer that fails. */
final class Retries {
    private static final long MOST_S = 60;

    static {
        System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");   // read when the first client is made
    }

    private Retries() {}

    /** topic, body, level: send a message that is to come later; the status. */
    static Object send(JsonObject arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("producers");
        producer.setNamesrvAddr(arguments.get("namesrv").getAsString());
        producer.setVipChannelEnabled(false);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        try {
            Message message = new Message(
                arguments.get("topic").getAsString(), arguments.get("body").getAsString().getBytes(StandardCharsets.UTF_8));
            message.setDelayTimeLevel(arguments.get("level").getAsInt());
            return producer.send(message).getSendStatus().name();
        } finally {
            producer.shutdown();
        }
    }

    /** group, topic, attempts, most: fail so often at one message, and consume it then; each attempt's reconsumeTimes. */
    static Object consume(JsonObject arguments) throws Exception {
        int attempts = arguments.get("attempts").getAsInt();
        LinkedBlockingQueue<Integer> times = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments.get("group").getAsString());
        consumer.setNamesrvAddr(arguments.get("namesrv").getAsString());
        consumer.setVipChannelEnabled(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setHeartbeatBrokerInterval(2000);   // 5.x clients race at their start, see Clients.push
        consumer.setAwaitTerminationMillisWhenShutdown(3000);   // the last failure is sent back
        consumer.setPollNameServerInterval(1000);   // its retry topic comes to be with its first heartbeat
        consumer.setMaxReconsumeTimes(arguments.get("most").getAsInt());
        consumer.subscribe(arguments.get("topic").getAsString(), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(1);
            boolean isLast = false;
            for (MessageExt message : messages) {
                times.add(message.getReconsumeTimes());
                isLast |= message.getReconsumeTimes() >= attempts - 1;
            }
            return isLast && arguments.get("succeeds").getAsBoolean()
                ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        try {
            List<Integer> told = new ArrayList<>();
            while (told.size() < attempts) {
                Integer one = times.poll(MOST_S, TimeUnit.SECONDS);
                if (one == null) throw new IllegalStateException("after " + told + " no attempt in " + MOST_S + " s");
                told.add(one);
            }
            return told;
        } finally {
            consumer.shutdown();
        }
    }
}
