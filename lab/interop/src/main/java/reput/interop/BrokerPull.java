package reput.interop;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.File;
import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** RocketMQ's broker in this process, and what a user does to read all messages of a topic: its client pulls them. */
final class BrokerPull {
    private static final long ROUTE_TIMEOUT_MS = 30_000;

    private String namesrv;
    private NamesrvController names;
    private BrokerController kept;

    /**
     * path: a store, which the broker opens; topic, with so many queues; max: messages a pull at the most. Returns when the
     * broker is started; it ends with the process.
     */
    Object serve(JsonObject arguments) throws Exception {
        startNames(Names.freePort());
        BrokerController broker = broker(arguments);
        int queues = arguments.get("queues").getAsInt();
        broker.getTopicConfigManager().updateTopicConfig(new TopicConfig(arguments.get("topic").getAsString(), queues, queues, 6));
        broker.start();
        return namesrv;
    }

    /**
     * path: a store with a topic, which a broker serves until broker-stop; keys: of broker and store. Its name server, which knows
     * the topic by then.
     */
    Object serveKept(JsonObject arguments) throws Exception {
        if (names == null) startNames(Names.freePort());
        kept = broker(arguments);
        kept.start();
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("routes");
        consumer.setNamesrvAddr(namesrv);
        consumer.start();
        String topic = arguments.get("topic").getAsString();
        int count = arguments.get("queues").getAsInt();
        // At its start a broker of 5.x may know no name server that is reached; by itself it registers again 10 s later.
        queues(consumer, topic, count, () -> kept.registerBrokerAll(true, false, true));
        consumer.shutdown();
        return namesrv;
    }

    /**
     * path: a store, which a broker serves until broker-stop; port, namesrv_port: its own and its name server's; namesrv: that of a
     * name server that is there, in place of its own; flush: its flushDiskType; keys: of broker and store.
     */
    Object start(JsonObject arguments) throws Exception {
        if (arguments.has("namesrv")) namesrv = arguments.get("namesrv").getAsString();
        else startNames(arguments.get("namesrv_port").getAsInt());
        kept = broker(arguments);
        kept.start();
        return null;
    }

    /** A slave that broker-start has started copies topics, groups and offsets of its master now, which it does each minute. */
    Object copy(JsonObject arguments) {
        kept.getSlaveSynchronize().syncAll();
        return null;
    }

    /** Stop the broker of broker-serve or broker-start, cleanly; its name server ends with the process. */
    Object stop(JsonObject arguments) {
        kept.shutdown();
        kept = null;
        return null;
    }

    private void startNames(int port) throws Exception {
        NettyServerConfig config = new NettyServerConfig();
        config.setListenPort(port);
        names = new NamesrvController(new NamesrvConfig(), config);
        if (!names.initialize()) throw new IllegalStateException("the name server does not start");
        names.start();
        namesrv = Names.LOCALHOST + ":" + port;
    }

    private BrokerController broker(JsonObject arguments) throws Exception {
        String path = arguments.get("path").getAsString();
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(path);
        store.setStorePathCommitLog(path + File.separator + "commitlog");
        store.setHaListenPort(Names.freePort());
        store.setDeleteWhen("99");
        store.setFileReservedTime(1_000_000);
        if (arguments.has("max")) {
            store.setMaxTransferCountOnMessageInMemory(arguments.get("max").getAsInt());
            store.setMaxTransferCountOnMessageInDisk(arguments.get("max").getAsInt());
            store.setMaxTransferBytesOnMessageInMemory(4 << 20);
            store.setMaxTransferBytesOnMessageInDisk(4 << 20);
        }
        if (arguments.has("log_file_size")) store.setMappedFileSizeCommitLog(arguments.get("log_file_size").getAsInt());
        if (arguments.has("flush")) store.setFlushDiskType(arguments.get("flush").getAsString());
        BrokerConfig config = new BrokerConfig();
        Properties keys = new Properties();
        if (arguments.has("keys")) {
            for (Map.Entry<String, JsonElement> key : arguments.get("keys").getAsJsonObject().entrySet()) {
                keys.setProperty(key.getKey(), key.getValue().getAsString());
            }
            MixAll.properties2Object(keys, config);
            MixAll.properties2Object(keys, store);
        }
        config.setBrokerIP1(Names.LOCALHOST);
        config.setNamesrvAddr(namesrv);
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(arguments.has("port") ? arguments.get("port").getAsInt() : Names.freePort());
        BrokerController broker = keys.containsKey("authenticationEnabled")
            ? checking(keys, config, server, store)
            : new BrokerController(config, server, new NettyClientConfig(), store);
        if (!broker.initialize()) throw new IllegalStateException("the broker does not start on " + path);
        return broker;
    }

    /** A broker with keys of access, which 5.3 and later have: its users are in the store's folder. */
    private static BrokerController checking(Properties keys, BrokerConfig config, NettyServerConfig server, MessageStoreConfig store)
        throws Exception {
        for (Constructor<?> made : BrokerController.class.getConstructors()) {
            Class<?>[] types = made.getParameterTypes();
            if (types.length != 5 || !types[4].getSimpleName().equals("AuthConfig")) continue;
            Object access = types[4].getConstructor().newInstance();
            MixAll.properties2Object(keys, access);
            types[4].getMethod("setAuthConfigPath", String.class).invoke(access, store.getStorePathRootDir() + File.separator + "config");
            return (BrokerController) made.newInstance(config, server, new NettyClientConfig(), store, access);
        }
        throw new IllegalArgumentException("this version has no authenticationEnabled");
    }

    /**
     * topic, with so many queues and count messages; threads: pullers; max: messages a pull. Seconds from the first pull to
     * the last message, each with its body and properties read.
     */
    Object pull(JsonObject arguments) throws Exception {
        String topic = arguments.get("topic").getAsString();
        int threads = arguments.get("threads").getAsInt();
        int max = arguments.get("max").getAsInt();
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("export");
        consumer.setNamesrvAddr(namesrv);
        consumer.start();
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            List<MessageQueue> queues = queues(consumer, topic, arguments.get("queues").getAsInt(), () -> {});
            long begin = System.nanoTime();
            List<Future<Long>> pulled = new ArrayList<>();
            for (MessageQueue queue : queues) pulled.add(pool.submit(() -> pullAll(consumer, queue, max)));
            long messages = 0;
            for (Future<Long> one : pulled) messages += one.get();
            double seconds = (System.nanoTime() - begin) / 1e9;
            if (messages != arguments.get("count").getAsLong()) throw new IllegalStateException(messages + " messages were pulled");
            return seconds;
        } finally {
            pool.shutdownNow();
            consumer.shutdown();
        }
    }

    /** The queues, once the name server knows them; what helps it to know them is run while it does not. */
    private static List<MessageQueue> queues(DefaultMQPullConsumer consumer, String topic, int count, Runnable help) throws Exception {
        long deadline = System.currentTimeMillis() + ROUTE_TIMEOUT_MS;
        while (true) {
            Exception why = null;
            try {
                List<MessageQueue> queues = new ArrayList<>(consumer.fetchSubscribeMessageQueues(topic));
                if (queues.size() == count) return queues;
            } catch (Exception e) {
                why = e;
            }
            if (System.currentTimeMillis() > deadline) throw new IllegalStateException("no route to " + topic, why);
            help.run();
            Thread.sleep(100);
        }
    }

    /** Messages from the first offset of a queue to its end; each is looked at as whoever writes it elsewhere must. */
    private static long pullAll(DefaultMQPullConsumer consumer, MessageQueue queue, int max) throws Exception {
        long offset = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        long messages = 0;
        long bytes = 0;
        while (offset < end) {
            PullResult result = consumer.pull(queue, "*", offset, max);
            if (result.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) bytes += message.getBody().length + message.getProperties().size();
                messages += result.getMsgFoundList().size();
            }
            offset = result.getNextBeginOffset();
        }
        if (messages > 0 && bytes == 0) throw new IllegalStateException("messages without bodies and properties");
        return messages;
    }
}
