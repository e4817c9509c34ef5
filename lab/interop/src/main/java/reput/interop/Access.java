package reput.interop;

import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/** Clients that sign their requests; TLS is chosen by system properties of the process. */
final class Access {
    private static final long MOST_S = 60;

    private Access() {}

    /** Signs as user and password say; null without a user. */
    static RPCHook hook(JsonObject arguments) {
        if (!arguments.has("user")) return null;
        String user = arguments.get("user").getAsString(), password = arguments.get("password").getAsString();
        return new AclClientRPCHook(new SessionCredentials(user, password));
    }

    /** namesrv, topic, body, user, password: the status, or the code and the remark of a refusal. */
    static Object send(JsonObject arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("signing", hook(arguments));
        producer.setInstanceName("signing" + System.nanoTime());
        producer.setNamesrvAddr(arguments.get("namesrv").getAsString());
        producer.setVipChannelEnabled(false);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        Map<String, Object> told = new LinkedHashMap<>();
        try {
            byte[] body = arguments.get("body").getAsString().getBytes(StandardCharsets.UTF_8);
            told.put("status", producer.send(new Message(arguments.get("topic").getAsString(), body)).getSendStatus().name());
        } catch (MQBrokerException | MQClientException error) {   // the latter after several tries
            Throwable refusal = error instanceof MQBrokerException ? error : error.getCause();
            if (!(refusal instanceof MQBrokerException)) throw error;
            told.put("code", ((MQBrokerException) refusal).getResponseCode());
            told.put("remark", ((MQBrokerException) refusal).getErrorMessage());
        } finally {
            producer.shutdown();
        }
        return told;
    }

    /** namesrv, topic, group, user, password: the first body that a push consumer gets. */
    static Object consume(JsonObject arguments) throws Exception {
        LinkedBlockingQueue<String> got = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(arguments.get("group").getAsString(), hook(arguments), new AllocateMessageQueueAveragely());
        consumer.setInstanceName("signing" + System.nanoTime());
        consumer.setNamesrvAddr(arguments.get("namesrv").getAsString());
        consumer.setVipChannelEnabled(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setHeartbeatBrokerInterval(2000);
        consumer.subscribe(arguments.get("topic").getAsString(), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) got.add(new String(message.getBody(), StandardCharsets.UTF_8));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            String body = got.poll(MOST_S, TimeUnit.SECONDS);
            if (body == null) throw new IllegalStateException("no message came in " + MOST_S + " s");
            return body;
        } finally {
            consumer.shutdown();
        }
    }
}
