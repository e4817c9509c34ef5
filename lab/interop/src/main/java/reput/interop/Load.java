package reput.interop;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What bench/broker puts on a broker, whoever's it is: RocketMQ's client in this process, which lives as long as the run, so
 * that its code is compiled. A request that fails is counted and not sent again.
 */
final class Load {
    private static final int TIMEOUT_MS = 10_000;
    private static final long MOST_S = 60;
    private static final String[] TAGS = {"paid", "sent", "held", "void"};
    /** Messages a pull. */
    private static final int PULL_SIZE = 32;

    private String namesrv;
    private DefaultMQProducer producer;
    private DefaultMQPullConsumer puller;
    private DefaultMQPushConsumer pusher;
    /** Nanoseconds from send to listener, of messages that were sent after `since`. */
    private final ConcurrentLinkedQueue<Long> arrived = new ConcurrentLinkedQueue<>();
    private volatile long since;

    /** namesrv: where clients that are started from now on find a broker. */
    Object connect(JsonObject arguments) {
        namesrv = arguments.get("namesrv").getAsString();
        return null;
    }

    /** All clients that were started are shut down, at the same time: each waits for a second. */
    Object leave(JsonObject arguments) throws Exception {
        List<Thread> threads = new ArrayList<>();
        if (producer != null) threads.add(new Thread(producer::shutdown));
        if (puller != null) threads.add(new Thread(puller::shutdown));
        if (pusher != null) threads.add(new Thread(pusher::shutdown));
        for (Thread thread : threads) thread.start();
        for (Thread thread : threads) thread.join();
        producer = null;
        puller = null;
        pusher = null;
        return null;
    }

    /**
     * jobs at the same time, for so many seconds or, with messages, each until it has so many. A job: kind (send, pull),
     * topic, threads, rate (requests a second of all threads; 0: one after the other); of a send size and batch; of a
     * pull first, the queue offset where it begins, and begins again at the end of a queue. An answer a job.
     */
    Object run(JsonObject arguments) throws Exception {
        boolean timed = !arguments.has("messages");
        long messages = timed ? Long.MAX_VALUE : arguments.get("messages").getAsLong();
        List<Job> jobs = new ArrayList<>();
        for (JsonElement one : arguments.getAsJsonArray("jobs")) jobs.add(new Job(one.getAsJsonObject(), messages));
        arrived.clear();
        since = System.nanoTime();
        long end = timed ? since + (long) (arguments.get("seconds").getAsDouble() * 1e9) : Long.MAX_VALUE;
        for (Job job : jobs) job.start(end);
        List<Object> told = new ArrayList<>();
        for (Job job : jobs) told.add(job.finish());
        return told;
    }

    /** topic, group, count: a push consumer with a backlog. Seconds from its first message to the last one of count. */
    Object push(JsonObject arguments) throws Exception {
        int count = arguments.get("count").getAsInt();
        AtomicInteger got = new AtomicInteger();
        AtomicLong first = new AtomicLong();
        AtomicLong last = new AtomicLong();
        start(arguments, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, message -> {
            long now = System.nanoTime();
            first.compareAndSet(0, now);
            if (got.incrementAndGet() == count) last.set(now);
        });
        await(() -> last.get() != 0, () -> got + " of " + count + " messages came");
        return (last.get() - first.get()) / 1e9;
    }

    /** topic, group: a push consumer is started; returns once it is given what is sent now. */
    Object subscribe(JsonObject arguments) throws Exception {
        String topic = arguments.get("topic").getAsString();
        arrived.clear();
        since = System.nanoTime();
        start(arguments, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, message -> {
            long sent = ByteBuffer.wrap(message.getBody()).getLong();
            if (sent >= since) arrived.add(System.nanoTime() - sent);
        });
        await(() -> {
            producer().send(message(topic, 0, Long.BYTES));
            Thread.sleep(100);
            return !arrived.isEmpty();
        }, () -> "no message came");
        return null;
    }

    /** count: so many messages of the last run; microseconds from send to listener, by percentiles, when all have come. */
    Object arrived(JsonObject arguments) throws Exception {
        int count = arguments.get("count").getAsInt();
        await(() -> arrived.size() >= count, () -> arrived.size() + " of " + count + " messages came");
        float[] all = new float[count];
        for (int i = 0; i < count; i++) all[i] = arrived.poll() / 1e3f;
        return percentiles(all);
    }

    private interface Taken {
        void take(MessageExt message);
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private interface Words {
        String say();
    }

    private DefaultMQProducer producer() throws Exception {
        if (producer == null) {
            producer = new DefaultMQProducer("load");
            producer.setNamesrvAddr(namesrv);
            producer.setVipChannelEnabled(false);
            producer.setSendMsgTimeout(TIMEOUT_MS);
            producer.setRetryTimesWhenSendFailed(0);
            producer.start();
        }
        return producer;
    }

    private DefaultMQPullConsumer puller() throws Exception {
        if (puller == null) {
            puller = new DefaultMQPullConsumer("load-pull");
            puller.setNamesrvAddr(namesrv);
            puller.setVipChannelEnabled(false);
            puller.start();
        }
        return puller;
    }

    private void start(JsonObject arguments, ConsumeFromWhere where, Taken taken) throws Exception {
        pusher = new DefaultMQPushConsumer(arguments.get("group").getAsString());
        pusher.setNamesrvAddr(namesrv);
        pusher.setVipChannelEnabled(false);
        pusher.setConsumeFromWhere(where);
        pusher.subscribe(arguments.get("topic").getAsString(), "*");
        pusher.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) taken.take(message);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        pusher.start();
    }

    private static void await(Condition condition, Words failure) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(MOST_S);
        while (!condition.holds()) {
            if (System.nanoTime() > deadline) throw new IllegalStateException(failure.say() + " in " + MOST_S + " s");
            Thread.sleep(1);
        }
    }

    /** With the moment of its making in its first bytes. */
    private static Message message(String topic, long number, int size) {
        byte[] body = new byte[size];
        Arrays.fill(body, (byte) ('a' + number % 26));
        ByteBuffer.wrap(body).putLong(System.nanoTime());
        return new Message(topic, TAGS[(int) (number & 3)], "order-" + number, body);
    }

    private static Map<String, Double> percentiles(float[] us) {
        Arrays.sort(us);
        Map<String, Double> told = new LinkedHashMap<>();
        told.put("p50", percentile(us, 0.5));
        told.put("p99", percentile(us, 0.99));
        told.put("p999", percentile(us, 0.999));
        told.put("max", percentile(us, 1));
        return told;
    }

    private static double percentile(float[] sorted, double share) {
        return sorted.length == 0 ? 0 : sorted[Math.min((int) (share * sorted.length), sorted.length - 1)];
    }

    /** Threads that make the same kind of request, one after the other. */
    private final class Job {
        private final JsonObject arguments;
        private final String topic;
        private final long most;
        private final double rate;
        private final AtomicLong numbers = new AtomicLong();
        private final AtomicLong messages = new AtomicLong();
        private final AtomicInteger failed = new AtomicInteger();
        private volatile String failure;
        private final List<float[]> latencies = new ArrayList<>();
        private final Thread[] threads;
        private final List<MessageQueue> queues;
        private long begun;
        private long end;

        Job(JsonObject arguments, long most) throws Exception {
            this.arguments = arguments;
            this.most = most;
            topic = arguments.get("topic").getAsString();
            rate = arguments.get("rate").getAsDouble();
            boolean pulls = arguments.get("kind").getAsString().equals("pull");
            queues = new ArrayList<>(pulls ? puller().fetchSubscribeMessageQueues(topic) : producer().fetchPublishMessageQueues(topic));
            threads = new Thread[arguments.get("threads").getAsInt()];
            for (int t = 0; t < threads.length; t++) {
                Request request = pulls ? new Pulls(t) : new Sends();
                threads[t] = new Thread(() -> work(request));
            }
        }

        void start(long end) {
            this.end = end;
            begun = System.nanoTime();
            for (Thread thread : threads) thread.start();
        }

        Object finish() throws Exception {
            for (Thread thread : threads) thread.join();
            double seconds = (System.nanoTime() - begun) / 1e9;
            int requests = 0;
            for (float[] one : latencies) requests += one.length;
            float[] all = new float[requests];
            int position = 0;
            for (float[] one : latencies) {
                System.arraycopy(one, 0, all, position, one.length);
                position += one.length;
            }
            Map<String, Object> told = new LinkedHashMap<>(percentiles(all));
            told.put("seconds", seconds);
            told.put("requests", requests);
            told.put("messages", messages.get());
            told.put("failed", failed.get());
            told.put("failure", failure);
            return told;
        }

        private void work(Request request) {
            float[] us = new float[1024];
            int count = 0;
            double pause = rate == 0 ? 0 : threads.length * 1e9 / rate;
            double next = System.nanoTime();
            while (System.nanoTime() < end) {
                long number = numbers.getAndIncrement();
                if (number * request.size() >= most) break;
                if (pause > 0) {
                    next += pause;
                    for (long left = (long) next - System.nanoTime(); left > 0; left = (long) next - System.nanoTime()) LockSupport.parkNanos(left);
                }
                try {
                    request.prepare(number);
                    long start = System.nanoTime();
                    int got = request.run();
                    if (count == us.length) us = Arrays.copyOf(us, 2 * count);
                    us[count++] = (System.nanoTime() - start) / 1e3f;
                    messages.addAndGet(got);
                } catch (Exception error) {
                    failed.incrementAndGet();
                    failure = error.toString().split("\n")[0];
                }
            }
            synchronized (latencies) {
                latencies.add(Arrays.copyOf(us, count));
            }
        }

        private abstract class Request {
            /** Messages of one. */
            abstract int size();

            abstract void prepare(long number) throws Exception;

            /** Messages that were sent or pulled. */
            abstract int run() throws Exception;
        }

        private final class Sends extends Request {
            private final int batch = arguments.get("batch").getAsInt();
            private final int bytes = arguments.get("size").getAsInt();
            private final List<Message> made = new ArrayList<>();

            @Override
            int size() {
                return batch;
            }

            @Override
            void prepare(long number) {
                made.clear();
                for (int i = 0; i < batch; i++) made.add(message(topic, number * batch + i, bytes));
            }

            @Override
            int run() throws Exception {
                SendResult result = batch == 1 ? producer.send(made.get(0)) : producer.send(made);
                if (result.getSendStatus() != SendStatus.SEND_OK) throw new IllegalStateException(result.getSendStatus().name());
                return batch;
            }
        }

        /** Along one queue after the other: those whose number, divided by the number of threads, leaves its own. */
        private final class Pulls extends Request {
            private final long first = arguments.get("first").getAsLong();
            private int queue;
            private long offset = first;
            private long behind;

            Pulls(int thread) throws Exception {
                queue = thread % queues.size();
                behind = puller.maxOffset(queues.get(queue));
            }

            @Override
            int size() {
                return PULL_SIZE;
            }

            @Override
            void prepare(long number) throws Exception {
                if (offset >= behind) {
                    queue = (queue + threads.length) % queues.size();
                    behind = puller.maxOffset(queues.get(queue));
                    offset = first;
                }
            }

            @Override
            int run() throws Exception {
                PullResult result = puller.pull(queues.get(queue), "*", offset, PULL_SIZE);
                if (result.getPullStatus() != PullStatus.FOUND) throw new IllegalStateException(result + " at " + offset + " of " + behind);
                List<MessageExt> found = result.getMsgFoundList();
                if (found.get(0).getQueueOffset() != offset || result.getNextBeginOffset() != offset + found.size()) {
                    throw new IllegalStateException(result + " at " + offset);
                }
                offset = result.getNextBeginOffset();
                return found.size();
            }
        }
    }
}
