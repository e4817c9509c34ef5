package reput.interop;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The kinds of messages of a soak that are more than a send: delayed ones, those that are sent back, transactions, requests.
 * Each has a topic and a group of its own name. What was answered is told as "promised GROUP KEY".
 */
final class SoakKinds {
    private static final String DELAYED = "delayed", RETRIED = "retried", TRANSACTIONS = "transactions", REQUESTS = "requests";
    private static final String BROADCAST = "broadcast", LEVEL = "soakLevel", WAITS = "soakWaits";
    private static final long[] LEVEL_MS = {0, 1_000, 5_000, 10_000};   // RocketMQ's first levels
    private static final int MOST_RECONSUME_TIMES = 2;
    private static final long REPLY_MS = 10_000;
    private static final String TIMED = "timed", POPPED = "popped";

    private final SoakClients clients;
    private final String name;
    private final double perSecond;

    SoakKinds(SoakClients clients, String name, double perSecond) {
        this.clients = clients;
        this.name = name;
        this.perSecond = perSecond;
    }

    void start() {
        clients.start(this::sendDelayed);
        clients.start(() -> consume(DELAYED, DELAYED, "CLUSTERING", this::inTime));
        clients.start(() -> consume(DELAYED, BROADCAST, "BROADCASTING", this::inTime));
        clients.start(this::sendTimed);
        clients.start(() -> consume(TIMED, TIMED, "CLUSTERING", this::inTime));
        clients.start(this::sendPopped);
        clients.start(this::consumePopped);
        clients.start(this::sendRetried);
        clients.start(this::consumeRetried);
        clients.start(() -> consume("%DLQ%" + RETRIED, "dead", "CLUSTERING", this::deadLetter));
        clients.start(this::sendTransactions);
        clients.start(() -> consume(TRANSACTIONS, TRANSACTIONS, "CLUSTERING", this::committed));
        clients.start(this::sendRequests);
        clients.start(this::reply);
    }

    private interface Got {
        void message(String group, MessageExt message);
    }

    private void consume(String topic, String group, String model, Got got) throws Exception {
        clients.started(group, group, topic, consumer -> {
            // Its class has another package in 4.9.
            consumer.setMessageModel(Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), model));
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) got.message(group, message);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        });
    }

    private interface Send {
        SendResult send(String key) throws Exception;
    }

    /** A message each time that it is due, until nobody is to send any more; what is answered is promised to some groups. */
    private void sendAll(String kind, Send send, String... groups) throws Exception {
        for (long number = 0; clients.isSending(); number++) {
            String key = name + "-" + kind + "-" + number;
            try {
                SendResult result = send.send(key);
                if (result != null && result.getSendStatus() == SendStatus.SEND_OK) {
                    for (String group : groups) clients.tell("promised " + group + " " + key);
                    clients.count(kind + " messages answered", 1);
                }
            } catch (Exception e) {
                clients.failed(e);
            }
            Thread.sleep((long) (1000 / perSecond));
        }
    }

    private static Message message(String topic, String key) {
        return new Message(topic, "tag", key, SoakClients.bodyOf(key));
    }

    /** The number at the end of a key. */
    private static long number(String key) {
        return Long.parseLong(key.substring(key.lastIndexOf('-') + 1));
    }

    // -- delay levels

    private void sendDelayed() throws Exception {
        DefaultMQProducer producer = clients.producer(DELAYED);
        sendAll(DELAYED, key -> {
            Message message = message(DELAYED, key);
            int level = (int) (1 + number(key) % (LEVEL_MS.length - 1));
            message.setDelayTimeLevel(level);
            message.putUserProperty(LEVEL, Integer.toString(level));
            return producer.send(message);
        }, DELAYED, BROADCAST);
    }

    /** Milliseconds that the broker is to wait; a property of RocketMQ 5, which 4.9 has no method for. */
    private void sendTimed() throws Exception {
        DefaultMQProducer producer = clients.producer(TIMED);
        sendAll(TIMED, key -> {
            Message message = message(TIMED, key);
            String waits = Long.toString(500 + number(key) * 997 % 12_000);
            MessageAccessor.putProperty(message, "TIMER_DELAY_MS", waits);
            message.putUserProperty(WAITS, waits);
            return producer.send(message);
        }, TIMED);
    }

    private void inTime(String group, MessageExt message) {
        long waited = System.currentTimeMillis() - message.getBornTimestamp();
        String level = message.getUserProperty(LEVEL);
        long delay = level == null ? Long.parseLong(message.getUserProperty(WAITS)) : LEVEL_MS[Integer.parseInt(level)];
        if (waited < delay) clients.fail(message.getKeys() + " came after " + waited + " ms, not " + delay);
        clients.consumed(group, message);
    }

    // -- retries and dead letters

    private void sendRetried() throws Exception {
        DefaultMQProducer producer = clients.producer(RETRIED);
        sendAll(RETRIED, key -> producer.send(message(RETRIED, key)), RETRIED);
    }

    /** How often the consumer fails at a message: one in four is a dead letter. */
    private static long failures(String key) {
        return number(key) % (MOST_RECONSUME_TIMES + 2);
    }

    private void consumeRetried() throws Exception {
        clients.started(RETRIED, RETRIED, RETRIED, consumer -> {
            consumer.setMaxReconsumeTimes(MOST_RECONSUME_TIMES);
            consumer.setConsumeMessageBatchMaxSize(1);
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                MessageExt message = messages.get(0);
                if (message.getReconsumeTimes() < failures(message.getKeys())) {
                    clients.count("failures of a consumer", 1);
                    context.setDelayLevelWhenNextConsume(1);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                clients.consumed(RETRIED, message);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        });
    }

    private void deadLetter(String group, MessageExt message) {
        String key = message.getKeys();
        if (failures(key) <= MOST_RECONSUME_TIMES) clients.fail(key + " is a dead letter after " + failures(key) + " failures");
        clients.consumed(RETRIED, message);
        clients.count("dead letters", 1);
    }

    // -- POP

    private void sendPopped() throws Exception {
        DefaultMQProducer producer = clients.producer(POPPED);
        sendAll(POPPED, key -> producer.send(message(POPPED, key)), POPPED);
    }

    /** A consumer that lets the broker share the queues, which says POP (defaultMessageRequestMode); it fails at some messages. */
    private void consumePopped() throws Exception {
        clients.started(POPPED, POPPED, POPPED, consumer -> {
            try {
                consumer.getClass().getMethod("setClientRebalance", boolean.class).invoke(consumer, false);   // of 5.x alone
            } catch (ReflectiveOperationException e) {
                clients.fail(e.toString());
            }
            consumer.setConsumeMessageBatchMaxSize(1);
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                MessageExt message = messages.get(0);
                if (message.getReconsumeTimes() == 0 && number(message.getKeys()) % 4 == 0) {
                    clients.count("failures of a popping consumer", 1);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                if (message.getProperty("POP_CK") != null) clients.count("messages popped", 1);
                clients.consumed(POPPED, message);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        });
    }

    // -- transactions

    /** By its key: committed or rolled back at once, or when the broker asks. */
    private static LocalTransactionState end(String key) {
        return number(key) % 2 == 0 ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
    }

    private void sendTransactions() throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(TRANSACTIONS);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                // Its half message is in the log: from now on it must come, if it is committed, whatever happens.
                if (end(message.getKeys()) == LocalTransactionState.COMMIT_MESSAGE) {
                    clients.tell("promised " + TRANSACTIONS + " " + message.getKeys());
                }
                return number(message.getKeys()) % 8 < 6 ? end(message.getKeys()) : LocalTransactionState.UNKNOW;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                clients.count("transactions checked", 1);
                return end(message.getKeys());
            }
        });
        clients.start(producer);
        sendAll(TRANSACTIONS, key -> producer.sendMessageInTransaction(message(TRANSACTIONS, key), null));
    }

    private void committed(String group, MessageExt message) {
        if (end(message.getKeys()) == LocalTransactionState.ROLLBACK_MESSAGE) {
            clients.fail(message.getKeys() + " was rolled back, and came");
        }
        clients.consumed(group, message);
    }

    // -- requests and replies

    private void sendRequests() throws Exception {
        DefaultMQProducer producer = clients.producer("askers");
        sendAll(REQUESTS, key -> {
            producer.request(message(REQUESTS, key), new RequestCallback() {
                @Override
                public void onSuccess(Message reply) {
                    if (reply == null) return;   // 5.x calls it with null once the question is stored
                    if (!Arrays.equals(reply.getBody(), replyTo(key))) clients.fail("the reply to " + key + " is another one");
                    clients.count("requests answered", 1);
                }

                @Override
                public void onException(Throwable error) {
                    clients.count("requests without a reply", 1);   // replies are lost with a broker, as RocketMQ's are
                }
            }, REPLY_MS);
            return null;
        });
    }

    private static byte[] replyTo(String key) {
        return ("re: " + key).getBytes(StandardCharsets.UTF_8);
    }

    private void reply() throws Exception {
        DefaultMQProducer producer = clients.producer("repliers");
        clients.started(REQUESTS, REQUESTS, REQUESTS, consumer ->
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) {
                    try {
                        producer.send(MessageUtil.createReplyMessage(message, replyTo(message.getKeys())));
                    } catch (Exception e) {
                        clients.count("replies that reached nobody", 1);   // the one who asked has given up
                    }
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }));
    }
}
