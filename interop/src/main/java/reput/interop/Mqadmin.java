package reput.interop;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** RocketMQ's own mqadmin; that of 4.9.7 needs the files of an installation. */
final class Mqadmin {
    private Mqadmin() {}

    /** words: a command and its options; user, password: who signs, if anybody does. What it prints. */
    static Object run(JsonObject arguments) throws Exception {
        System.setProperty("rocketmq.namesrv.addr", arguments.get("namesrv").getAsString());
        List<String> words = new ArrayList<>();
        for (JsonElement word : arguments.getAsJsonArray("words")) words.add(word.getAsString());
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream before = System.out;
        System.setOut(new PrintStream(printed, true, "UTF-8"));
        try {
            MQAdminStartup.main0(words.toArray(new String[0]), Access.hook(arguments));
        } finally {
            System.setOut(before);
            System.clearProperty("rocketmq.namesrv.addr");
        }
        return printed.toString(StandardCharsets.UTF_8.name());
    }
}
