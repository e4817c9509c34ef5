package reput.interop;

import com.google.gson.JsonObject;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.attribute.FileTime;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.rocketmq.store.DefaultMessageStore;

/** Deletes old files of the open store, as Apache's cleaning services do. */
final class Retention {
    private Retention() {
    }

    /** Makes the first `log_files` log files older than any fileReservedTime, and cleans log, queues and index. */
    static Object delete(OpenStore open, JsonObject arguments) throws Exception {
        open.awaitDispatch();
        DefaultMessageStore store = open.store();
        List<Path> files;
        try (Stream<Path> paths = Files.list(Paths.get(open.path(), "commitlog"))) {
            files = paths.sorted().collect(Collectors.toList());
        }
        long old = System.currentTimeMillis() - TimeUnit.HOURS.toMillis(2L * store.getMessageStoreConfig().getFileReservedTime());
        for (Path file : files) store.flush();   // each flush does one file
        for (Path file : files.subList(0, arguments.get("log_files").getAsInt())) Files.setLastModifiedTime(file, FileTime.fromMillis(old));
        store.executeDeleteFilesManually();
        clean(store);
        for (Method method : DefaultMessageStore.class.getMethods()) {
            if (method.getName().equals("getQueueStore")) clean(method.invoke(store));   // 5.x
        }
        return open.ends();
    }

    /** Runs the periodic tasks that this version's class has; by themselves they run after a minute only. */
    private static void clean(Object service) throws ReflectiveOperationException {
        for (String task : List.of("cleanFilesPeriodically", "cleanQueueFilesPeriodically")) {
            for (Class<?> type = service.getClass(); type != null; type = type.getSuperclass()) {
                for (Method method : type.getDeclaredMethods()) {
                    if (!method.getName().equals(task)) continue;
                    method.setAccessible(true);
                    method.invoke(service);
                }
            }
        }
    }
}
