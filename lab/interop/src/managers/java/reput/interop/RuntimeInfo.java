package reput.interop;

import com.alibaba.fastjson.JSON;
import java.io.PrintStream;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What getRuntimeInfo says of a store, with what AdminBrokerProcessor adds to it from the store, as JSON. */
public final class RuntimeInfo {

    private RuntimeInfo() {
    }

    /** The folder of a store (a copy: it is opened for writing), and the size of its commit log and queue files. */
    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(arguments[0]);
        config.setStorePathCommitLog(arguments[0] + "/commitlog");
        config.setMappedFileSizeCommitLog(Integer.parseInt(arguments[1]));
        config.setMappedFileSizeConsumeQueue(Integer.parseInt(arguments[2]));
        config.setMaxHashSlotNum(Integer.parseInt(arguments[3]));
        config.setMaxIndexNum(Integer.parseInt(arguments[4]));
        config.setHaListenPort(0);
        config.setDeleteWhen("99");
        DefaultMessageStore store = new DefaultMessageStore(
            config, new BrokerStatsManager("interop", false), null, new BrokerConfig(), new ConcurrentHashMap<>());
        if (!store.load()) {
            throw new IllegalStateException("the store does not load");
        }
        store.start();
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
        Thread.sleep(1500);
        Map<String, String> info = new TreeMap<>(store.getRuntimeInfo());
        info.put("dispatchBehindBytes", String.valueOf(store.dispatchBehindBytes()));
        info.put("earliestMessageTimeStamp", String.valueOf(store.getEarliestMessageTime()));
        info.put("remainHowManyDataToFlush", String.valueOf(store.remainHowManyDataToFlush()));
        out.println(JSON.toJSONString(info, true));
        out.flush();
        Runtime.getRuntime().halt(0);
    }
}
