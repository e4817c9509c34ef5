package reput.interop;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.util.BloomFilter;

/** What RocketMQ's own filter classes say of SQL92 expressions and of bits in a bit map. */
final class Filters {
    private Filters() {
    }

    /**
     * expressions; messages: properties of each. For each expression a text with a letter a message: T, F, N for null, E for an
     * evaluation that throws; or "compile" for one that does not compile.
     */
    static Object evaluate(JsonObject arguments) {
        List<Map<String, String>> messages = new ArrayList<>();
        for (JsonElement message : arguments.get("messages").getAsJsonArray()) {
            Map<String, String> properties = new HashMap<>();
            message.getAsJsonObject().entrySet().forEach(one -> properties.put(one.getKey(), one.getValue().getAsString()));
            messages.add(properties);
        }
        List<String> results = new ArrayList<>();
        for (JsonElement text : arguments.get("expressions").getAsJsonArray()) {
            results.add(evaluate(text.getAsString(), messages));
        }
        return results;
    }

    private static String evaluate(String text, List<Map<String, String>> messages) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        } catch (Exception e) {
            return "compile";
        }
        StringBuilder result = new StringBuilder();
        for (Map<String, String> properties : messages) {
            try {
                Object value = expression.evaluate(new MessageEvaluationContext(properties));
                result.append(value == null ? 'N' : value == Boolean.TRUE ? 'T' : 'F');
            } catch (Exception e) {
                result.append('E');
            }
        }
        return result.toString();
    }

    /** error_rate in percent, consumers, names. The number of bits, and the bits of each name. */
    static Object bits(JsonObject arguments) {
        BloomFilter filter = BloomFilter.createByFn(arguments.get("error_rate").getAsInt(), arguments.get("consumers").getAsInt());
        Map<String, Object> result = new HashMap<>();
        result.put("bit_num", filter.getM());
        List<int[]> positions = new ArrayList<>();
        for (JsonElement name : arguments.get("names").getAsJsonArray()) {
            positions.add(filter.calcBitPositions(name.getAsString()));
        }
        result.put("positions", positions);
        return result;
    }
}
