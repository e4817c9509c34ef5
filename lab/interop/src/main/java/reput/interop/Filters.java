package reput.interop;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.util.BloomFilter;

/** What RocketMQ's own filter classes say of SQL92 expressions and of bits in a bit map, and clients that filter. */
final class Filters {
    private static final int SEND_TIMEOUT_MS = 30_000;
    private static final long MOST_S = 60;

    private Filters() {
    }

    /**
     * expressions; messages: properties of each. For each expression a text with a letter a message: T, F, N for null, E for an
     * evaluation that throws; or "compile" for one that does not compile.
     */
    static Object evaluate(JsonObject arguments) {
        List<Map<String, String>> messages = new ArrayList<>();
        for (JsonElement message : arguments.get("messages").getAsJsonArray()) {
            Map<String, String> properties = new HashMap<>();
            message.getAsJsonObject().entrySet().forEach(one -> properties.put(one.getKey(), one.getValue().getAsString()));
            messages.add(properties);
        }
        List<String> results = new ArrayList<>();
        for (JsonElement text : arguments.get("expressions").getAsJsonArray()) {
            results.add(evaluate(text.getAsString(), messages));
        }
        return results;
    }

    private static String evaluate(String text, List<Map<String, String>> messages) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        } catch (Exception e) {
            return "compile";
        }
        StringBuilder result = new StringBuilder();
        for (Map<String, String> properties : messages) {
            try {
                Object value = expression.evaluate(new MessageEvaluationContext(properties));
                result.append(value == null ? 'N' : value == Boolean.TRUE ? 'T' : 'F');
            } catch (Exception e) {
                result.append('E');
            }
        }
        return result.toString();
    }

    /** namesrv, topic; properties: of a message each, whose body is its number. They go to the first queue. */
    static Object send(JsonObject arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("filter-producers");
        producer.setNamesrvAddr(arguments.get("namesrv").getAsString());
        producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
        producer.start();
        try {
            int number = 0;
            for (JsonElement one : arguments.get("properties").getAsJsonArray()) {
                byte[] body = Integer.toString(number++).getBytes(StandardCharsets.UTF_8);
                Message message = new Message(arguments.get("topic").getAsString(), body);
                one.getAsJsonObject().entrySet().forEach(p -> message.putUserProperty(p.getKey(), p.getValue().getAsString()));
                producer.send(message, (queues, m, first) -> queues.get(0), null);
            }
            return number;
        } finally {
            producer.shutdown();
        }
    }

    /**
     * namesrv, topic, group, expression, count: a push consumer that ends when it has so many messages; asks_broker: it pops.
     * Their bodies, in order of their numbers; or what its start threw.
     */
    static Object consume(JsonObject arguments) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments.get("group").getAsString());
        consumer.setNamesrvAddr(arguments.get("namesrv").getAsString());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setHeartbeatBrokerInterval(2000);
        consumer.setAwaitTerminationMillisWhenShutdown(MOST_S * 1000);   // so that the offset counts what was taken last
        if (arguments.has("asks_broker")) {
            DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        }
        consumer.subscribe(arguments.get("topic").getAsString(), MessageSelector.bySql(arguments.get("expression").getAsString()));
        LinkedBlockingQueue<Integer> got = new LinkedBlockingQueue<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt one : messages) got.add(Integer.parseInt(new String(one.getBody(), StandardCharsets.UTF_8)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        try {
            consumer.start();
        } catch (MQClientException e) {
            return "code " + e.getResponseCode();
        }
        try {
            TreeSet<Integer> bodies = new TreeSet<>();
            while (bodies.size() < arguments.get("count").getAsInt()) {
                Integer one = got.poll(MOST_S, TimeUnit.SECONDS);
                if (one == null) throw new IllegalStateException("only these came: " + bodies);
                bodies.add(one);
            }
            return bodies;
        } finally {
            consumer.shutdown();
        }
    }

    /** error_rate in percent, consumers, names. The number of bits, and the bits of each name. */
    static Object bits(JsonObject arguments) {
        BloomFilter filter = BloomFilter.createByFn(arguments.get("error_rate").getAsInt(), arguments.get("consumers").getAsInt());
        Map<String, Object> result = new HashMap<>();
        result.put("bit_num", filter.getM());
        List<int[]> positions = new ArrayList<>();
        for (JsonElement name : arguments.get("names").getAsJsonArray()) {
            positions.add(filter.calcBitPositions(name.getAsString()));
        }
        result.put("positions", positions);
        return result;
    }
}
