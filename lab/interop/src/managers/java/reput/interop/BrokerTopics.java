package reput.interop;

import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.topic.TopicConfigManager;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** What a broker does to topics.json between its start and its end: system topics, its own spelling. */
public final class BrokerTopics {

    private BrokerTopics() {
    }

    /** `ROOT`: the store directory. */
    public static void main(String[] arguments) {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(arguments[0]);
        BrokerController broker = new BrokerController(
            new BrokerConfig(), new NettyServerConfig(), new NettyClientConfig(), config);
        TopicConfigManager topics = broker.getTopicConfigManager();
        if (!topics.load()) {  // BrokerController.initialize
            throw new IllegalStateException("topics.json was not read");
        }
        topics.persist();  // BrokerController.shutdown
        System.exit(0);
    }
}
