package reput.interop;

import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Clients that write traces of what they do (enableMsgTrace). */
final class Traces {
    private static final long MOST_S = 60;

    private Traces() {}

    private static final List<Runnable> RUNNING = new ArrayList<>();

    /** topic: the id of a message that was sent and consumed. The clients run on: a stop may lose traces that wait. */
    static Object sendAndConsume(JsonObject arguments) throws Exception {
        String namesrv = arguments.get("namesrv").getAsString(), topic = arguments.get("topic").getAsString();
        DefaultMQProducer producer = new DefaultMQProducer("traced-producers", null, true, null);
        producer.setNamesrvAddr(namesrv);
        producer.setVipChannelEnabled(false);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        RUNNING.add(producer::shutdown);
        CountDownLatch got = new CountDownLatch(1);
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer("traced", null, new AllocateMessageQueueAveragely(), true, null);
        consumer.setNamesrvAddr(namesrv);
        consumer.setVipChannelEnabled(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setHeartbeatBrokerInterval(2000);   // 5.x clients race at their start, see Clients.push
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            got.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        RUNNING.add(consumer::shutdown);
        String id = producer.send(new Message(topic, "tag", "key", "traced".getBytes(StandardCharsets.UTF_8))).getMsgId();
        if (!got.await(MOST_S, TimeUnit.SECONDS)) throw new IllegalStateException("the message did not come");
        return id;
    }

    /** Stops the clients. */
    static Object stop(JsonObject arguments) {
        for (Runnable shutdown : RUNNING) shutdown.run();
        RUNNING.clear();
        return null;
    }
}
