package reput.interop;

import com.google.gson.JsonObject;
import java.lang.reflect.Field;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.common.message.*;   // MessageExtBrokerInner lives here in 5.x
import org.apache.rocketmq.store.*;            // ... and here in 4.x
import org.apache.rocketmq.store.index.IndexService;

/**
 * What bench/ measures of RocketMQ: the same calls, on the messages of bench/messages.py, timed inside this process.
 *
 * What a caller could reuse is reused: a broker hands over properties as text and a batch as encoded bytes, so of these only
 * the digits change from message to message.
 */
final class Bench {
    private static final InetSocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);
    private static final String TOPIC = "orders";
    private static final int QUEUES = 10;
    private static final int BODY_SIZE = 256;
    private static final String[] TAGS = {"paid", "sent", "held", "void"};
    private static final String UNIQUE_PREFIX = "7F0000010001AABBCCDD0000";
    private static final String KEY_PREFIX = "order-";
    private static final int DIGITS = 8;
    /** So many times as many keys are looked for before, so that the few that are timed lie in no cache. */
    private static final int TOUCHED = 10;

    private final DefaultMessageStore store;

    private Bench(OpenStore open) {
        store = open.store();
    }

    /**
     * count messages, from number first on, by so many threads: by putMessage, or by putMessages with batch in each.
     * Seconds until all are appended, and until they are dispatched; the log's bytes; with timed also percentiles of a
     * putMessage in us.
     */
    static Object put(OpenStore open, JsonObject arguments) throws Exception {
        return new Bench(open).put(
            arguments.get("first").getAsInt(), arguments.get("count").getAsInt(), arguments.get("threads").getAsInt(),
            arguments.get("batch").getAsInt(), arguments.get("timed").getAsBoolean());
    }

    /** Seconds of so many calls, for max messages each at random places: as buffers, or with decode by MessageDecoder. */
    static Object get(OpenStore open, JsonObject arguments) throws Exception {
        return new Bench(open).get(arguments.get("calls").getAsInt(), arguments.get("max").getAsInt(), arguments.get("decode").getAsBoolean());
    }

    /** Seconds of so many calls, for one key each, at random out of the first so many messages. */
    static Object query(OpenStore open, JsonObject arguments) {
        return new Bench(open).query(arguments.get("calls").getAsInt(), arguments.get("messages").getAsInt());
    }

    /** Seconds until log, queues, index and checkpoint are on the disk. */
    static Object sync(OpenStore open, JsonObject arguments) throws Exception {
        return new Bench(open).sync();
    }

    private static double secondsSince(long start) {
        return (System.nanoTime() - start) / 1e9;
    }

    private Map<String, Double> put(int first, int count, int threads, int batch, boolean timed) throws Exception {
        int each = count / threads;
        long[][] latencies = new long[threads][timed ? each : 0];
        CyclicBarrier begin = new CyclicBarrier(threads + 1);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        Thread[] workers = new Thread[threads];
        for (int t = 0; t < threads; t++) {
            int number = t;
            workers[t] = new Thread(() -> {
                try {
                    begin.await();
                    if (batch > 0) putBatches(first + number * each, each, batch);
                    else putOneByOne(first + number * each, each, number % QUEUES, latencies[number]);
                } catch (Throwable e) {
                    failure.set(e);
                }
            });
            workers[t].start();
        }
        long before = store.getMaxPhyOffset();
        begin.await();
        long start = System.nanoTime();
        for (Thread worker : workers) worker.join();
        double appended = secondsSince(start);
        while (store.dispatchBehindBytes() > 0) Thread.sleep(1);
        double dispatched = secondsSince(start);
        if (failure.get() != null) throw new IllegalStateException("a put failed", failure.get());
        long[] sorted = Arrays.stream(latencies).flatMapToLong(Arrays::stream).sorted().toArray();
        return Map.of("appended", appended, "dispatched", dispatched, "bytes", (double) (store.getMaxPhyOffset() - before),
            "p50", percentile(sorted, 0.5), "p99", percentile(sorted, 0.99));
    }

    /** In microseconds. */
    private static double percentile(long[] sorted, double share) {
        return sorted.length == 0 ? 0 : sorted[(int) (share * (sorted.length - 1))] / 1e3;
    }

    private void putOneByOne(int first, int count, int queue, long[] latencies) {
        byte[] body = new byte[BODY_SIZE];
        new Random(first).nextBytes(body);
        Properties properties = new Properties();
        MessageExtBrokerInner message = head(new MessageExtBrokerInner(), queue);
        message.setBody(body);
        for (int i = 0; i < count; i++) {
            message.setBornTimestamp(System.currentTimeMillis());
            message.setPropertiesString(properties.of(first + i));
            if (latencies.length == 0) {
                check(store.putMessage(message));
            } else {
                long start = System.nanoTime();
                check(store.putMessage(message));
                latencies[i] = System.nanoTime() - start;
            }
        }
    }

    private void putBatches(int first, int count, int size) {
        Properties properties = new Properties();
        int each = 4 * 5 + BODY_SIZE + 2 + properties.size();
        ByteBuffer bytes = ByteBuffer.allocate(each * size);
        byte[] body = new byte[BODY_SIZE];
        Random random = new Random(first);
        for (int i = 0; i < size; i++) {
            random.nextBytes(body);
            bytes.putInt(each).putInt(0).putInt(0).putInt(0).putInt(BODY_SIZE).put(body).putShort((short) properties.size());
            bytes.position(bytes.position() + properties.size());
        }
        for (int done = 0; done < count; done += size) {
            int rows = Math.min(size, count - done);
            for (int i = 0; i < rows; i++) properties.copyTo(bytes.array(), (i + 1) * each - properties.size(), first + done + i);
            MessageExtBatch batch = head(new MessageExtBatch(), done / size % QUEUES);
            batch.setBornTimestamp(System.currentTimeMillis());
            batch.setBody(rows == size ? bytes.array() : Arrays.copyOf(bytes.array(), rows * each));
            check(store.putMessages(batch));
        }
    }

    private static <T extends MessageExt> T head(T message, int queue) {
        MessageAccessor.setProperties(message, new HashMap<>());
        message.setTopic(TOPIC);
        message.setQueueId(queue);
        message.setBornHost(HOST);
        message.setStoreHost(HOST);
        return message;
    }

    private static void check(PutMessageResult result) {
        if (result.getPutMessageStatus() != PutMessageStatus.PUT_OK) throw new IllegalStateException(result.toString());
    }

    private double get(int calls, int most, boolean decode) throws Exception {
        Random random = new Random(7);
        int last = (int) Math.max(store.getMaxOffsetInQueue(TOPIC, 0) - most - 1, 1);
        int[] queues = random.ints(calls, 0, QUEUES).toArray();
        int[] offsets = random.ints(calls, 0, last).toArray();
        long start = 0;
        for (int round = 0; round < 2; round++) {   // the second one counts
            start = System.nanoTime();
            for (int i = 0; i < calls; i++) pull(queues[i], offsets[i], most, decode);
        }
        return secondsSince(start);
    }

    private void pull(int queue, long offset, int most, boolean decode) {
        GetMessageResult result = store.getMessage("bench", TOPIC, queue, offset, most, null);
        if (result.getMessageCount() != most) throw new IllegalStateException(result.toString());
        if (decode) {
            for (ByteBuffer message : result.getMessageBufferList()) {
                if (MessageDecoder.decode(message.duplicate()).getBody().length != BODY_SIZE) throw new IllegalStateException("body");
            }
        }
        result.release();
    }

    private double query(int calls, int messages) {
        String[] keys = new Random(7).ints(TOUCHED * calls, 0, messages).mapToObj(i -> KEY_PREFIX + String.format("%0" + DIGITS + "d", i)).toArray(String[]::new);
        for (String key : keys) query(key);
        long start = System.nanoTime();
        for (int i = 0; i < calls; i++) query(keys[i]);
        return secondsSince(start);
    }

    private void query(String key) {
        QueryMessageResult result = store.queryMessage(TOPIC, key, 32, 0, Long.MAX_VALUE);
        if (result.getMessageBufferList().size() != 1) throw new IllegalStateException(key + " was not found once");
        result.release();
    }

    private double sync() throws Exception {
        long start = System.nanoTime();
        store.flush();
        for (var queues : store.getConsumeQueueTable().values()) {
            for (var queue : queues.values()) queue.flush(0);
        }
        Field field = DefaultMessageStore.class.getDeclaredField("indexService");
        field.setAccessible(true);
        IndexService index = (IndexService) field.get(store);
        index.flush(index.getAndCreateLastIndexFile());
        store.getStoreCheckpoint().flush();
        return secondsSince(start);
    }

    /** The properties of message after message, as the text that a producer sends. */
    private static final class Properties {
        private final byte[] text;
        private final int tag;
        private final int unique;
        private final int key;

        Properties() {
            String zeros = "0".repeat(DIGITS);
            String start = "KEYS\u0001" + KEY_PREFIX;
            String middle = start + zeros + "\u0002UNIQ_KEY\u0001" + UNIQUE_PREFIX;
            String end = middle + zeros + "\u0002TAGS\u0001";
            key = start.length();
            unique = middle.length();
            tag = end.length();
            text = (end + TAGS[0] + "\u0002region\u0001eu\u0002tenant\u0001acme-trading\u0002").getBytes(StandardCharsets.ISO_8859_1);
        }

        int size() {
            return text.length;
        }

        String of(int number) {
            change(number);
            return new String(text, StandardCharsets.ISO_8859_1);
        }

        void copyTo(byte[] target, int position, int number) {
            change(number);
            System.arraycopy(text, 0, target, position, text.length);
        }

        private void change(int number) {
            for (int i = DIGITS - 1, rest = number; i >= 0; i--, rest /= 10) text[key + i] = text[unique + i] = (byte) ('0' + rest % 10);
            for (int i = 0; i < 4; i++) text[tag + i] = (byte) TAGS[number & 3].charAt(i);
        }
    }
}
