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

/**
 * Reads commands from the standard input, one JSON object a line ({"command": ..., its arguments}), and answers each with
 * one line: {"result": ...} or {"error": stack trace}. Ends, without closing anything, when the input ends.
 */
public final class Main {
    /** Takes a command's arguments; what it returns becomes JSON. */
    interface Command {
        Object run(JsonObject arguments) throws Exception;
    }

    private static final Gson GSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();

    private static Map<String, Command> commands() {
        OpenStore store = new OpenStore();
        Map<String, Command> commands = new LinkedHashMap<>();
        commands.put("open", store::open);
        commands.put("put", arguments -> Puts.put(store, arguments));
        commands.put("flush", store::flush);
        commands.put("close", store::close);
        commands.put("dump", arguments -> Dump.dump(store));
        commands.put("query", arguments -> Dump.query(store, arguments));
        commands.put("delete", arguments -> Retention.delete(store, arguments));
        commands.put("bench-load", arguments -> store.loadSeconds());
        commands.put("bench-put", arguments -> Bench.put(store, arguments));
        commands.put("bench-get", arguments -> Bench.get(store, arguments));
        commands.put("bench-query", arguments -> Bench.query(store, arguments));
        commands.put("bench-sync", arguments -> Bench.sync(store, arguments));
        Names names = new Names();
        commands.put("start-namesrv", names::startNamesrv);
        commands.put("start-broker", names::startBroker);
        commands.put("register", names::register);
        commands.put("stop-broker", names::stopBroker);
        commands.put("send", names::send);
        BrokerPull broker = new BrokerPull();
        commands.put("bench-serve", broker::serve);
        commands.put("bench-pull", broker::pull);
        commands.put("broker-serve", broker::serveKept);
        commands.put("broker-start", broker::start);
        commands.put("broker-copy", broker::copy);
        commands.put("broker-stop", broker::stop);
        commands.put("client-send", Clients::send);
        commands.put("client-push", Clients::push);
        commands.put("client-lite", Clients::lite);
        commands.put("client-find", Clients::find);
        commands.put("client-request", ClientCalls::request);
        commands.put("retry-send", Retries::send);
        commands.put("timer-send", Timers::send);
        commands.put("timer-recall", Timers::recall);
        commands.put("transactions", Transactions::run);
        commands.put("retry-consume", Retries::consume);
        commands.put("mqadmin", Mqadmin::run);
        commands.put("mqadmin-commands", arguments -> Mqadmin.commands());
        commands.put("signed-send", Access::send);
        commands.put("signed-consume", Access::consume);
        commands.put("failover-start", Failover::start);
        commands.put("failover-look", Failover::look);
        commands.put("failover-stop", Failover::stop);
        commands.put("traced", Traces::sendAndConsume);
        commands.put("traced-stop", Traces::stop);
        commands.put("filter-evaluate", Filters::evaluate);
        commands.put("filter-send", Filters::send);
        commands.put("filter-consume", Filters::consume);
        commands.put("filter-bits", Filters::bits);
        commands.put("consumer-start", ClientCalls::start);
        commands.put("consumer-take", ClientCalls::take);
        commands.put("consumer-stop", ClientCalls::stop);
        Load load = new Load();
        commands.put("load-connect", load::connect);
        commands.put("load-leave", load::leave);
        commands.put("load-run", load::run);
        commands.put("load-push", load::push);
        commands.put("load-subscribe", load::subscribe);
        commands.put("load-arrived", load::arrived);
        return commands;
    }

    public static void main(String[] words) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);   // whatever a library prints is no answer
        Map<String, Command> commands = commands();
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
