package reput.interop;

import com.google.gson.JsonObject;
import java.io.File;
import java.io.IOException;
import java.net.BindException;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** RocketMQ's name server, which ends with the process; and a broker and a producer for any name server. */
final class Names {
    static final String LOCALHOST = "127.0.0.1";
    private static final int SEND_TIMEOUT_MS = 20_000;

    private BrokerController broker;

    Names() {
        // RocketMQ's own main classes do so. Without it a request says that it comes from a version before 3.0.11.
        System.setProperty("rocketmq.remoting.version", Integer.toString(MQVersion.CURRENT_VERSION));
    }

    /** path: a folder for its files. Returns the name server's address. */
    Object startNamesrv(JsonObject arguments) throws Exception {
        String path = arguments.get("path").getAsString();
        NamesrvConfig config = new NamesrvConfig();
        config.setKvConfigPath(path + File.separator + "kvConfig.json");
        config.setConfigStorePath(path + File.separator + "namesrv.properties");
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(freePort());
        NamesrvController namesrv = new NamesrvController(config, server);
        if (!namesrv.initialize()) throw new IllegalStateException("the name server does not start");
        namesrv.start();
        return LOCALHOST + ":" + server.getListenPort();
    }

    /** path: its store; namesrv: where it registers; name; compressed: whether it compresses registrations. Returns its address. */
    Object startBroker(JsonObject arguments) throws Exception {
        String path = arguments.get("path").getAsString();
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(path);
        store.setStorePathCommitLog(path + File.separator + "commitlog");
        store.setMappedFileSizeCommitLog(1 << 20);
        store.setMaxHashSlotNum(1_000);
        store.setMaxIndexNum(4_000);
        store.setHaListenPort(freePort());
        BrokerConfig config = new BrokerConfig();
        config.setBrokerName(arguments.get("name").getAsString());
        config.setBrokerIP1(LOCALHOST);
        config.setNamesrvAddr(arguments.get("namesrv").getAsString());
        config.setCompressedRegister(arguments.get("compressed").getAsBoolean());
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(freePort());
        broker = new BrokerController(config, server, new NettyClientConfig(), store);
        if (!broker.initialize()) throw new IllegalStateException("the broker does not start on " + path);
        broker.start();
        return LOCALHOST + ":" + server.getListenPort();
    }

    /** The broker registers now; at its start it may know no name server that is reached, and waits for 10 s. */
    Object register(JsonObject arguments) {
        broker.registerBrokerAll(true, false, true);
        return null;
    }

    /** Begins its shutdown, which unregisters it first and takes 15 s. */
    Object stopBroker(JsonObject arguments) {
        new Thread(broker::shutdown).start();
        return null;
    }

    /** namesrv: where the route comes from; topic: made by the broker, if it is new. Returns the broker's name. */
    Object send(JsonObject arguments) throws Exception {
        String topic = arguments.get("topic").getAsString();
        DefaultMQProducer producer = new DefaultMQProducer("names");
        producer.setNamesrvAddr(arguments.get("namesrv").getAsString());
        producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
        producer.start();
        try {
            return producer.send(new Message(topic, "hello".getBytes(StandardCharsets.UTF_8))).getMessageQueue().getBrokerName();
        } finally {
            producer.shutdown();
        }
    }

    /** A port that nobody has, below those that Linux gives to connections; so is the one 2 below, where a broker listens, too. */
    static int freePort() throws IOException {
        while (true) {
            int port = ThreadLocalRandom.current().nextInt(20_002, 32_000);
            try (ServerSocket socket = new ServerSocket(port); ServerSocket vip = new ServerSocket(port - 2)) {
                return port;
            } catch (BindException taken) {
                continue;
            }
        }
    }
}
