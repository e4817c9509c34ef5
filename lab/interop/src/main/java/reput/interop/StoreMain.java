package reput.interop;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Supplier;

/**
 * The commands on a store alone, for versions of which Maven Central has a store and no broker; `Main` has them, too.
 *
 * Reads commands from the standard input, one JSON object a line ({"command": ..., its arguments}), and answers each with
 * one line: {"result": ...} or {"error": stack trace}. Ends, without closing anything, when the input ends.
 */
public final class StoreMain {
    /** Takes a command's arguments; what it returns becomes JSON. */
    interface Command {
        Object run(JsonObject arguments) throws Exception;
    }

    private static final Gson GSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();

    private StoreMain() {}

    static Map<String, Command> commands() {
        OpenStore store = new OpenStore();
        Map<String, Command> commands = new LinkedHashMap<>();
        commands.put("open", store::open);
        commands.put("put", arguments -> Puts.put(store, arguments));
        commands.put("flush", store::flush);
        commands.put("close", store::close);
        commands.put("dump", arguments -> Dump.dump(store));
        commands.put("query", arguments -> Dump.query(store, arguments));
        commands.put("delete", arguments -> Retention.delete(store, arguments));
        commands.put("fail-syncs", arguments -> Mends.failSyncs(store, arguments));
        commands.put("persist", Mends::persist);
        commands.put("bench-load", arguments -> store.loadSeconds());
        commands.put("bench-put", arguments -> Bench.put(store, arguments));
        commands.put("bench-get", arguments -> Bench.get(store, arguments));
        commands.put("bench-query", arguments -> Bench.query(store, arguments));
        commands.put("bench-sync", arguments -> Bench.sync(store, arguments));
        return commands;
    }

    public static void main(String[] words) throws Exception {
        answer(StoreMain::commands);
    }

    static void answer(Supplier<Map<String, Command>> all) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);   // whatever a library prints is no answer
        Map<String, Command> commands = all.get();
        Shutdowns.hasten();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(answer(commands, JsonParser.parseString(line).getAsJsonObject()));
        }
        Runtime.getRuntime().halt(0);
    }

    private static String answer(Map<String, Command> commands, JsonObject request) {
        JsonObject answer = new JsonObject();
        try {
            String name = request.get("command").getAsString();
            Command command = commands.get(name);
            if (command == null) {
                throw new IllegalArgumentException("no command " + name + ", there are " + commands.keySet());
            }
            Object result = command.run(request);
            answer.add("result", result instanceof JsonElement ? (JsonElement) result : GSON.toJsonTree(result));
        } catch (Throwable e) {
            StringWriter trace = new StringWriter();
            e.printStackTrace(new PrintWriter(trace));
            answer.addProperty("error", trace.toString());
        }
        return GSON.toJson(answer);
    }
}
