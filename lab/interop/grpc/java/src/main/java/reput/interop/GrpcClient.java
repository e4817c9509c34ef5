package reput.interop;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * What an unmodified Java program does with a gRPC proxy: GrpcClient PROXY TOPIC, for the topics and groups TOPIC-normal and so on.
 * Prints one JSON object: the ids of what was sent, and what each consumer got.
 */
public final class GrpcClient {
    private static final int MOST_S = 60;
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    private interface Task {
        void run() throws Exception;
    }

    private final ClientConfiguration configuration;
    private final String prefix;

    private GrpcClient(String proxy, String prefix) {
        this.configuration = ClientConfiguration.newBuilder().setEndpoints(proxy).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(10)).build();
        this.prefix = prefix;
    }

    public static void main(String[] args) throws Exception {
        GrpcClient client = new GrpcClient(args[0], args[1]);
        client.transact();
        Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(client.configuration)
            .setTopics(client.topic("normal"), client.topic("fifo"), client.topic("delay")).build();
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("sent", client.send(producer));
        told.put("received", client.receive(10));
        told.put("pushed", client.push("normal", "a || c", 6, () -> { }));
        told.put("ordered", client.push("fifo", "*", 20, () -> { }));
        told.put("late_ms", client.delay(producer));
        told.put("transaction", client.push("transaction", "*", 2, () -> { }));
        System.out.println(json(told));
        System.out.flush();
        Runtime.getRuntime().halt(0); // threads of the library may go on
    }

    private String topic(String kind) {
        return prefix + "-" + kind;
    }

    private MessageBuilder message(String kind, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic(kind)).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    private static String body(MessageView message) {
        return StandardCharsets.UTF_8.decode(message.getBody()).toString();
    }

    private static Map<String, Object> viewed(MessageView message) {
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("body", body(message));
        told.put("tag", message.getTag().orElse(""));
        told.put("keys", message.getKeys());
        told.put("attempt", message.getDeliveryAttempt());
        told.put("id", message.getMessageId().toString());
        return told;
    }

    /** The ids by bodies. */
    private Map<String, String> send(Producer producer) throws Exception {
        Map<String, String> told = new LinkedHashMap<>();
        for (int i = 0; i < 9; i++) {
            Message message = message("normal", "m-" + i).setTag("abc".substring(i % 3, i % 3 + 1)).setKeys("key-" + i, "every").build();
            told.put("m-" + i, producer.send(message).getMessageId().toString());
        }
        for (int i = 0; i < 20; i++) {
            String group = "xy".substring(i % 2, i % 2 + 1);
            String body = String.format("%s-%02d", group, i);
            told.put(body, producer.send(message("fifo", body).setMessageGroup(group).build()).getMessageId().toString());
        }
        return told;
    }

    /** Leaves one transaction open, which the broker asks for. */
    private void transact() throws Exception {
        Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic("transaction"))
            .setTransactionChecker(asked -> TransactionResolution.COMMIT).build();
        for (String body : List.of("commit", "rollback", "checked")) {
            Transaction transaction = producer.beginTransaction();
            producer.send(message("transaction", body).build(), transaction);
            if (body.equals("commit")) {
                transaction.commit();
            } else if (body.equals("rollback")) {
                transaction.rollback();
            }
        }
    }

    /** Acks all messages. The first comes again, since it is made visible instead. */
    private List<Object> receive(int count) throws Exception {
        SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(topic("simple")).setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Map.of(topic("normal"), FilterExpression.SUB_ALL)).build();
        List<Object> told = new ArrayList<>();
        for (long deadline = System.nanoTime() + MOST_S * 1_000_000_000L; told.size() < count;) {
            List<MessageView> got = consumer.receive(16, Duration.ofSeconds(30));
            if (got.isEmpty() && System.nanoTime() > deadline) {
                throw new IllegalStateException("only these came: " + told);
            }
            for (MessageView message : got) {
                told.add(viewed(message));
                if (told.size() == 1) {
                    consumer.changeInvisibleDuration(message, Duration.ofSeconds(1));
                } else {
                    consumer.ack(message);
                }
            }
        }
        consumer.close();
        return told;
    }

    /** What a group is given: the first so many messages, in the order in which they come. */
    private List<Object> push(String kind, String tags, int count, Task began) throws Exception {
        BlockingQueue<Object> got = new LinkedBlockingQueue<>();
        PushConsumer consumer = PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(topic(kind)).setSubscriptionExpressions(Map.of(topic(kind), new FilterExpression(tags)))
            .setConsumptionThreadCount(4).setMessageListener(message -> {
                got.add(viewed(message));
                return ConsumeResult.SUCCESS;
            }).build();
        began.run();
        List<Object> told = new ArrayList<>();
        while (told.size() < count) {
            Object one = got.poll(MOST_S, TimeUnit.SECONDS);
            if (one == null) {
                throw new IllegalStateException(kind + ": only these came to " + consumer.getConsumerGroup() + ": " + told);
            }
            told.add(one);
        }
        return told;
    }

    /** How long after its time a message came, in milliseconds. */
    private long delay(Producer producer) throws Exception {
        long[] due = new long[1];
        push("delay", "*", 1, () -> {
            due[0] = System.currentTimeMillis() + 2000;
            producer.send(message("delay", "later").setDeliveryTimestamp(due[0]).build());
        });
        return System.currentTimeMillis() - due[0];
    }

    /** The library brings no JSON of its own; our texts need no escapes. */
    private static String json(Object value) {
        if (value instanceof Map) {
            return ((Map<?, ?>) value).entrySet().stream().map(e -> json(e.getKey()) + ":" + json(e.getValue()))
                .collect(Collectors.joining(",", "{", "}"));
        }
        if (value instanceof Collection) {
            return ((Collection<?>) value).stream().map(GrpcClient::json).collect(Collectors.joining(",", "[", "]"));
        }
        return value instanceof Number ? value.toString() : '"' + value.toString() + '"';
    }
}
