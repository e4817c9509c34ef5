package reput.interop;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import java.util.function.Supplier;
import org.apache.rocketmq.broker.filter.ConsumerFilterData;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.broker.loadbalance.MessageRequestModeManager;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.broker.offset.ConsumerOrderInfoManager;
import org.apache.rocketmq.broker.offset.LmqConsumerOffsetManager;
import org.apache.rocketmq.broker.schedule.DelayOffsetSerializeWrapper;
import org.apache.rocketmq.broker.subscription.SubscriptionGroupManager;
import org.apache.rocketmq.broker.transaction.TransactionMetrics;
import org.apache.rocketmq.common.ConfigManager;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.filter.util.BloomFilterData;
import org.apache.rocketmq.remoting.protocol.DataVersion;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.body.SetMessageRequestModeRequestBody;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.remoting.protocol.statictopic.LogicQueueMappingItem;
import org.apache.rocketmq.remoting.protocol.statictopic.TopicQueueMappingDetail;
import org.apache.rocketmq.remoting.protocol.body.TopicQueueMappingSerializeWrapper;
import org.apache.rocketmq.remoting.protocol.subscription.SimpleSubscriptionData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.store.timer.TimerMetrics;

/** RocketMQ's own readers and writers of the JSON files below config/. */
public final class MetadataFiles {

    private static final Map<String, Supplier<String>> WRITERS = new TreeMap<>();
    private static final Map<String, Function<String, String>> COPIERS = new TreeMap<>();

    static {
        WRITERS.put("topics.json", MetadataFiles::topics);
        WRITERS.put("subscriptionGroup.json", MetadataFiles::groups);
        WRITERS.put("consumerOffset.json", MetadataFiles::offsets);
        WRITERS.put("lmqConsumerOffset.json", MetadataFiles::lightOffsets);
        WRITERS.put("delayOffset.json", MetadataFiles::delays);
        WRITERS.put("consumerFilter.json", MetadataFiles::filters);
        WRITERS.put("consumerOrderInfo.json", MetadataFiles::orders);
        WRITERS.put("messageRequestMode.json", MetadataFiles::requestModes);
        WRITERS.put("topicQueueMapping.json", MetadataFiles::queueMappings);
        WRITERS.put("timermetrics", MetadataFiles::timers);
        WRITERS.put("transactionMetrics", MetadataFiles::transactions);
        COPIERS.put("topics.json", wrapper(TopicConfigSerializeWrapper.class));
        COPIERS.put("subscriptionGroup.json", manager(() -> new SubscriptionGroupManager(null) {
            @Override
            protected void init() {
            }
        }));
        COPIERS.put("consumerOffset.json", manager(ConsumerOffsetManager::new));
        COPIERS.put("lmqConsumerOffset.json", manager(LmqConsumerOffsetManager::new));
        COPIERS.put("delayOffset.json", wrapper(DelayOffsetSerializeWrapper.class));
        COPIERS.put("consumerFilter.json", wrapper(ConsumerFilterManager.class));
        COPIERS.put("consumerOrderInfo.json", wrapper(ConsumerOrderInfoManager.class));
        COPIERS.put("messageRequestMode.json", manager(MessageRequestModeManager::new));
        COPIERS.put("topicQueueMapping.json", wrapper(TopicQueueMappingSerializeWrapper.class));
        COPIERS.put("timermetrics", manager(() -> new TimerMetrics("")));
        COPIERS.put("transactionMetrics", manager(() -> new TransactionMetrics("")));
    }

    private MetadataFiles() {
    }

    /** `write DIR` writes an example of each file; `copy FROM TO` reads each file of a folder and writes what was read. */
    public static void main(String[] arguments) throws IOException {
        if (arguments[0].equals("write")) {
            for (Map.Entry<String, Supplier<String>> writer : WRITERS.entrySet()) {
                save(Paths.get(arguments[1], writer.getKey()), writer.getValue().get());
            }
        } else {
            for (Map.Entry<String, Function<String, String>> copier : COPIERS.entrySet()) {
                Path source = Paths.get(arguments[1], copier.getKey());
                if (Files.exists(source)) {
                    String text = new String(Files.readAllBytes(source), "UTF-8");
                    save(Paths.get(arguments[2], copier.getKey()), copier.getValue().apply(text));
                }
            }
        }
    }

    private static void save(Path path, String text) {
        try {
            Files.createDirectories(path.getParent());
            Files.write(path, text.getBytes("UTF-8"));
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    private static Function<String, String> wrapper(Class<?> kind) {
        return text -> RemotingSerializable.toJson(RemotingSerializable.fromJson(text, kind), true);
    }

    private static Function<String, String> manager(Supplier<ConfigManager> make) {
        return text -> {
            ConfigManager manager = make.get();
            manager.decode(text);
            return manager.encode(true);
        };
    }

    private static DataVersion version(long counter) {
        DataVersion version = new DataVersion();
        version.setTimestamp(1700000000000L);
        version.getCounter().set(counter);
        return version;
    }

    private static String timers() {
        TimerMetrics timers = new TimerMetrics("");
        timers.decode("{\"dataVersion\":{\"counter\":2,\"stateVersion\":0,\"timestamp\":1700000000000},"
            + "\"timingCount\":{\"order-topic\":{\"count\":2,\"timeStamp\":1700000000000}}}");
        return timers.encode(true);
    }

    private static String transactions() {
        TransactionMetrics transactions = new TransactionMetrics("");
        transactions.decode("{\"dataVersion\":{\"counter\":3,\"stateVersion\":0,\"timestamp\":1700000000000},"
            + "\"transactionCount\":{\"order-topic\":{\"count\":2,\"timeStamp\":1700000000000}}}");
        return transactions.encode(true);
    }

    private static String topics() {
        TopicConfigSerializeWrapper wrapper = new TopicConfigSerializeWrapper();
        Map<String, String> shared = new HashMap<>();
        shared.put("queue.type", "BatchCQ");
        shared.put("odd", "{1:2} \" \\ \n \u0007 \u0085 \u2028 ü 😀 /");
        for (String name : Arrays.asList("order-topic", "%RETRY%order-group", "1:2", "a.b_c")) {
            TopicConfig topic = new TopicConfig(name, 4, 8, 6, 1);
            topic.setAttributes(name.equals("order-topic") ? new HashMap<>() : shared);
            wrapper.getTopicConfigTable().put(name, topic);
        }
        wrapper.setDataVersion(version(3));
        return wrapper.toJson(true);
    }

    private static String groups() {
        SubscriptionGroupManager manager = new SubscriptionGroupManager(null) {
            @Override
            protected void init() {
            }
        };
        SubscriptionGroupConfig group = new SubscriptionGroupConfig();
        group.setGroupName("order-group");
        group.setAttributes(new HashMap<>(Collections.singletonMap("lite.bind.topic", "x")));
        group.setSubscriptionDataSet(new HashSet<>(Arrays.asList(
            new SimpleSubscriptionData("order-topic", "TAG", "a || b", 7L))));
        manager.getSubscriptionGroupTable().put("order-group", group);
        manager.getForbiddenTable().put("order-group",
            new ConcurrentHashMap<>(Collections.singletonMap("order-topic", 1)));
        manager.getDataVersion().assignNewOne(version(1));
        return manager.encode(true);
    }


    private static String offsets() {
        ConsumerOffsetManager manager = new ConsumerOffsetManager();
        manager.setDataVersion(version(0));
        manager.setOffsetTable(new ConcurrentHashMap<>());
        ConcurrentHashMap<Integer, Long> offsets = new ConcurrentHashMap<>(Map.of(0, 12L, 1, 7L, 11, 1L << 40));
        manager.getOffsetTable().put("order-topic@order-group", offsets);
        manager.getOffsetTable().put("%RETRY%other-group@other-group", new ConcurrentHashMap<>(Map.of(0, 3L)));
        return manager.encode(true);
    }

    private static String lightOffsets() {
        LmqConsumerOffsetManager manager = new LmqConsumerOffsetManager();
        manager.setDataVersion(version(0));
        manager.getOffsetTable().put("order-topic@order-group", new ConcurrentHashMap<>(Map.of(0, 12L)));
        manager.getLmqOffsetTable().put("%LMQ%a@%LMQ%group", 3L);
        return manager.encode(true);
    }

    private static String delays() {
        DelayOffsetSerializeWrapper wrapper = new DelayOffsetSerializeWrapper();
        wrapper.setOffsetTable(new ConcurrentHashMap<>(Map.of(1, 5L, 3, 12L)));
        wrapper.setDataVersion(version(1));
        return wrapper.toJson(true);
    }

    private static String filters() {
        ConsumerFilterManager manager = new ConsumerFilterManager();
        ConsumerFilterData data = new ConsumerFilterData();
        data.setConsumerGroup("sql-group");
        data.setTopic("order-topic");
        data.setExpression("a > 3 AND b = '1:2'");
        data.setExpressionType("SQL92");
        data.setBornTime(1700000000000L);
        data.setClientVersion(1700000000001L);
        data.setBloomFilterData(new BloomFilterData(new int[] {29, 72, 81}, 112));
        ConsumerFilterManager.FilterDataMapByTopic topic =
            new ConsumerFilterManager.FilterDataMapByTopic("order-topic");
        topic.getGroupFilterData().put("sql-group", data);
        manager.setFilterDataByTopic(new ConcurrentHashMap<>(Map.of("order-topic", topic)));
        return RemotingSerializable.toJson(manager, true);
    }

    private static String orders() {
        ConsumerOrderInfoManager manager = new ConsumerOrderInfoManager();
        ConsumerOrderInfoManager.OrderInfo order = new ConsumerOrderInfoManager.OrderInfo(
            "attempt", 1700000000000L, 60000L, Arrays.asList(10L, 1L, 2L), 1700000000001L, 5L);
        order.setOffsetNextVisibleTime(new HashMap<>(Map.of(10L, 1700000060000L)));
        manager.setTable(new ConcurrentHashMap<>(
            Map.of("order-topic@order-group", new ConcurrentHashMap<>(Map.of(0, order)))));
        return RemotingSerializable.toJson(manager, true);
    }

    private static String requestModes() {
        MessageRequestModeManager manager = new MessageRequestModeManager();
        SetMessageRequestModeRequestBody body = new SetMessageRequestModeRequestBody();
        body.setTopic("order-topic");
        body.setConsumerGroup("order-group");
        body.setMode(MessageRequestMode.POP);
        body.setPopShareQueueNum(2);
        manager.setMessageRequestMode("order-topic", "order-group", body);
        return manager.encode(true);
    }

    private static String queueMappings() {
        TopicQueueMappingDetail detail = new TopicQueueMappingDetail("static-topic", 2, "broker-a", 1700000000000L);
        TopicQueueMappingDetail.putMappingInfo(detail, 0, Arrays.asList(
            new LogicQueueMappingItem(0, 0, "broker-b", 0, 0, 100, -1, -1),
            new LogicQueueMappingItem(1, 1, "broker-a", 100, 0, -1, -1, -1)));
        TopicQueueMappingSerializeWrapper wrapper = new TopicQueueMappingSerializeWrapper();
        wrapper.setTopicQueueMappingInfoMap(Map.of("static-topic", detail));
        wrapper.setDataVersion(version(4));
        return wrapper.toJson(true);
    }
}
