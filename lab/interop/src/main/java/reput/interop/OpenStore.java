package reput.interop;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.File;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.dledger.DLedgerCommitLog;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** The one DefaultMessageStore that is open. */
final class OpenStore {
    private DefaultMessageStore store;
    private String path;
    private double loadSeconds;

    /** The store; an exception where none is open. */
    DefaultMessageStore store() {
        if (store == null) throw new IllegalStateException("no store is open");
        return store;
    }

    /** Of the load, in which a recovery dispatches everything; the start behind it may sleep for a second. */
    double loadSeconds() {
        return loadSeconds;
    }

    /** The folder of the open store. */
    String path() {
        return path;
    }

    /**
     * path: the folder; config: MessageStoreConfig's own names; batch_topics: those with queue.type=BatchCQ (5.x);
     * bit_maps: whether units of an extension get bit maps, as a broker computes them from SQL filters.
     * Returns once the store is loaded, recovered and has dispatched all of its log.
     */
    Object open(JsonObject arguments) throws Exception {
        if (store != null) throw new IllegalStateException(path + " is still open");
        path = arguments.get("path").getAsString();
        MessageStoreConfig config = config(arguments.getAsJsonObject("config"));
        ConcurrentHashMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        if (arguments.has("batch_topics")) {
            for (JsonElement name : arguments.getAsJsonArray("batch_topics")) topics.put(name.getAsString(), batchTopic(name.getAsString()));
        }
        JsonElement storeType = arguments.getAsJsonObject("config").get("storeType");
        DefaultMessageStore opened = construct(config, topics, storeType != null && storeType.getAsString().equals("defaultRocksDB"));
        if (arguments.has("bit_maps") && arguments.get("bit_maps").getAsBoolean()) {
            opened.getDispatcherList().addFirst(request -> request.setBitMap(bitMap(request.getCommitLogOffset())));
        }
        long begin = System.nanoTime();
        if (!opened.load()) throw new IllegalStateException("DefaultMessageStore.load() says no to " + path);
        loadSeconds = (System.nanoTime() - begin) / 1e9;
        opened.start();
        if (opened.getCommitLog() instanceof DLedgerCommitLog) awaitLeadership((DLedgerCommitLog) opened.getCommitLog());
        else stopDelivery(opened);   // where DLedger does not begin it
        store = opened;
        awaitDispatch();
        return ends();
    }

    private MessageStoreConfig config(JsonObject values) throws ReflectiveOperationException {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(path);
        config.setStorePathCommitLog(path + File.separator + "commitlog");
        config.setHaListenPort(0);
        // Nothing is deleted unless a test asks for it, however full the machine's disk is.
        config.setDeleteWhen("99");
        config.setFileReservedTime(1_000_000);
        config.setDiskMaxUsedSpaceRatio(98);
        config.setFlushCommitLogTimed(false);   // else a thread sleeps for half a second, also when the store is closed
        Map<String, Method> setters = new HashMap<>();
        for (Method method : MessageStoreConfig.class.getMethods()) {
            if (method.getName().startsWith("set") && method.getParameterCount() == 1) setters.put(method.getName().substring(3).toLowerCase(), method);
        }
        for (Map.Entry<String, JsonElement> value : values.entrySet()) {
            Method setter = setters.get(value.getKey().toLowerCase());
            // An older version does not know every key, and need not.
            if (setter != null) setter.invoke(config, as(setter.getParameterTypes()[0], value.getValue()));
        }
        return config;
    }

    private static Object as(Class<?> type, JsonElement value) {
        if (type == int.class) return value.getAsInt();
        if (type == long.class) return value.getAsLong();
        if (type == double.class) return value.getAsDouble();
        if (type == boolean.class) return value.getAsBoolean();
        if (type == FlushDiskType.class) return FlushDiskType.valueOf(value.getAsString());
        return value.getAsString();
    }

    /** TopicConfig has attributes since 5.0. */
    private static TopicConfig batchTopic(String name) throws ReflectiveOperationException {
        TopicConfig topic = new TopicConfig(name);
        TopicConfig.class.getMethod("setAttributes", Map.class).invoke(topic, new HashMap<>(Map.of("queue.type", "BatchCQ")));
        return topic;
    }

    /** 4.x takes four arguments, 5.x five, and has a second class, for storeType=defaultRocksDB. */
    private static DefaultMessageStore construct(MessageStoreConfig config, ConcurrentHashMap<String, TopicConfig> topics, boolean rocksDb) throws ReflectiveOperationException {
        BrokerStatsManager statistics = new BrokerStatsManager("interop", false);
        Class<?> type = rocksDb ? Class.forName("org.apache.rocketmq.store.RocksDBMessageStore") : DefaultMessageStore.class;
        for (Constructor<?> constructor : type.getConstructors()) {
            if (constructor.getParameterCount() == 4) return (DefaultMessageStore) constructor.newInstance(config, statistics, null, new BrokerConfig());
            if (constructor.getParameterCount() == 5) return (DefaultMessageStore) constructor.newInstance(config, statistics, null, new BrokerConfig(), topics);
        }
        throw new IllegalStateException(type + " has no constructor of four or five arguments");
    }

    /** None for every third offset, else 14 bytes made from it: what bit_map in tests/golden/bit_maps.py gives. */
    private static byte[] bitMap(long offset) {
        if (offset % 3 == 0) return null;
        byte[] bytes = new byte[14];
        for (int i = 0; i < bytes.length; i++) bytes[i] = (byte) ((offset >> i % 8) * 31 + i);
        return bytes;
    }

    /**
     * A store of 4.x delivers delayed messages by itself unless it believes to be a slave; in 5.x the broker does. It waits
     * a second for its first look at each level, which then does nothing; the interrupt ends that.
     */
    private static void stopDelivery(DefaultMessageStore store) throws ReflectiveOperationException {
        for (Method method : DefaultMessageStore.class.getMethods()) {
            if (!method.getName().equals("handleScheduleMessageService")) continue;
            Thread.currentThread().interrupt();
            method.invoke(store, BrokerRole.SLAVE);
            if (Thread.interrupted()) throw new IllegalStateException("a change to SLAVE no longer waits: the interrupt hit something else");
        }
    }

    /** Of a group of one a DLedger makes its only member the leader after a moment; until then it takes no message. */
    private static void awaitLeadership(DLedgerCommitLog log) throws InterruptedException {
        while (!log.getdLedgerServer().getMemberState().isLeader()) Thread.sleep(1);
    }

    /** Returns once queues and index have all of the log. */
    void awaitDispatch() throws InterruptedException {
        while (store().dispatchBehindBytes() > 0) Thread.sleep(1);
    }

    /** The commit log's first and last offset. */
    long[] ends() {
        return new long[] {store().getMinPhyOffset(), store().getMaxPhyOffset()};
    }

    /** The log on the disk; queues and index have it. */
    Object flush(JsonObject arguments) throws InterruptedException {
        awaitDispatch();
        return store().flush();
    }

    /**
     * A clean shutdown. Before it stops its services DefaultMessageStore sleeps for one to six seconds, so that dispatch may
     * catch up; it has, and the interrupt ends these sleeps at once.
     */
    Object close(JsonObject arguments) throws InterruptedException {
        awaitDispatch();
        long[] ends = ends();
        Thread.currentThread().interrupt();
        store.shutdown();
        if (Thread.interrupted()) throw new IllegalStateException("shutdown() no longer sleeps first: the interrupt hit something else");
        store = null;
        return ends;
    }
}
