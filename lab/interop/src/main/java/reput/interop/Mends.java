package reput.interop;

import com.google.gson.JsonObject;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.channels.FileChannel;
import org.apache.rocketmq.common.ConfigManager;
import org.apache.rocketmq.store.CommitLog;

/** What RocketMQ's versions do differently since they have mended it: docs/design/differences.md says of each which. */
final class Mends {
    private Mends() {
    }

    /** From now on no sync of the open store's last log file succeeds; what is appended to its map is there. */
    static Object failSyncs(OpenStore open, JsonObject arguments) throws Exception {
        Field queue = CommitLog.class.getDeclaredField("mappedFileQueue");
        queue.setAccessible(true);
        Object files = queue.get(open.store().getCommitLog());
        Object last = files.getClass().getMethod("getLastMappedFile").invoke(files);
        Method channel = last.getClass().getMethod("getFileChannel");
        ((FileChannel) channel.invoke(last)).close();
        return true;
    }

    /** Writes a text as brokers write their JSON files. path: the file. */
    static Object persist(JsonObject arguments) {
        new ConfigManager() {
            @Override
            public String configFilePath() {
                return arguments.get("path").getAsString();
            }

            @Override
            public String encode() {
                return encode(false);
            }

            @Override
            public String encode(boolean prettyFormat) {
                return arguments.get("text").getAsString();
            }

            @Override
            public void decode(String text) {
            }
        }.persist();
        return true;
    }
}
