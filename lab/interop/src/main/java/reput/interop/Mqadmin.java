package reput.interop;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.commons.cli.CommandLine;
import org.apache.commons.cli.Options;
import org.apache.commons.cli.PosixParser;
import org.apache.rocketmq.srvutil.ServerUtil;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/** RocketMQ's own mqadmin. Its main method needs the files of an installation (4.9.7), and its commands do not. */
final class Mqadmin {
    private Mqadmin() {}

    /** The names of all commands. */
    static Object commands() throws Exception {
        List<String> names = new ArrayList<>();
        for (SubCommand command : known()) names.add(command.commandName());
        return names;
    }

    /** words: a command and its options; user, password: who signs, if anybody does. What it prints, a failure's trace too. */
    static Object run(JsonObject arguments) throws Exception {
        List<String> words = new ArrayList<>();
        for (JsonElement word : arguments.getAsJsonArray("words")) words.add(word.getAsString());
        String name = words.remove(0);
        SubCommand found = known().stream().filter(one -> one.commandName().equals(name)).findFirst().orElseThrow();
        SubCommand command = found.getClass().getDeclaredConstructor().newInstance();   // some keep a client that they have closed
        Options options = command.buildCommandlineOptions(ServerUtil.buildCommandlineOptions(new Options()));
        CommandLine line = new PosixParser().parse(options, words.toArray(new String[0]));
        System.setProperty("rocketmq.namesrv.addr", arguments.get("namesrv").getAsString());
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream out = System.out, errors = System.err, captured = new PrintStream(printed, true, "UTF-8");
        System.setOut(captured);
        System.setErr(captured);
        try {
            command.execute(line, options, Access.hook(arguments));
        } catch (Exception error) {
            error.printStackTrace(captured);
        } finally {
            System.setOut(out);
            System.setErr(errors);
            System.clearProperty("rocketmq.namesrv.addr");
        }
        return printed.toString(StandardCharsets.UTF_8.name());
    }

    /** What a start of mqadmin fills. */
    @SuppressWarnings("unchecked")
    private static List<SubCommand> known() throws Exception {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (!List.class.isAssignableFrom(field.getType())) continue;
            field.setAccessible(true);
            List<SubCommand> commands = (List<SubCommand>) field.get(null);
            if (commands.isEmpty()) MQAdminStartup.initCommand();
            return commands;
        }
        throw new IllegalStateException("mqadmin has no list of commands");
    }
}
