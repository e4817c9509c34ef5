package reput.interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.TopicFilterType;
import org.apache.rocketmq.common.message.*;   // MessageExtBrokerInner is here in 5.x
import org.apache.rocketmq.store.*;            // ... and here in 4.x

/** Puts what the other side writes down as JSON. */
final class Puts {
    private static final int INNER_BATCH = 0x80 | 0x40;   // INNER_BATCH_FLAG with NEED_UNWRAP_FLAG, which 4.x has no names for

    private Puts() {
    }

    /**
     * messages: each is a message; or one with `batch`, the messages of a putMessages; or one with `inner_batch`, the
     * messages that one record is to hold. Answers with status, commit log offset, queue offset and count of each. Each is
     * dispatched before the next is put: small index files would be begun in one millisecond, and get one name.
     */
    static Object put(OpenStore open, JsonObject arguments) throws Exception {
        List<Map<String, Object>> results = new ArrayList<>();
        for (JsonElement element : arguments.getAsJsonArray("messages")) {
            JsonObject json = element.getAsJsonObject();
            PutMessageResult result = json.has("batch") ? open.store().putMessages(batch(json)) : open.store().putMessage(message(json));
            AppendMessageResult appended = result.getAppendMessageResult();
            Map<String, Object> told = new LinkedHashMap<>();
            told.put("status", result.getPutMessageStatus().name());
            if (appended != null) {
                told.put("commit_log_offset", appended.getWroteOffset());
                told.put("queue_offset", appended.getLogicsOffset());
                told.put("count", appended.getMsgNum());
                told.put("store_timestamp", appended.getStoreTimestamp());
            }
            results.add(told);
            open.awaitDispatch();
        }
        return results;
    }

    private static MessageExtBrokerInner message(JsonObject json) throws UnknownHostException {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        fill(message, json);
        if (json.has("inner_batch")) {
            JsonArray items = json.getAsJsonArray("inner_batch");
            message.setBody(items(items));
            message.setSysFlag(message.getSysFlag() | INNER_BATCH);
            MessageAccessor.putProperty(message, "INNER_NUM", String.valueOf(items.size()));
        }
        message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(TopicFilterType.SINGLE_TAG, message.getTags()));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    private static MessageExtBatch batch(JsonObject json) throws UnknownHostException {
        MessageExtBatch batch = new MessageExtBatch();
        fill(batch, json);
        batch.setBody(items(json.getAsJsonArray("batch")));
        return batch;
    }

    private static byte[] items(JsonArray array) {
        List<Message> items = new ArrayList<>();
        for (JsonElement element : array) {
            JsonObject json = element.getAsJsonObject();
            Message item = new Message();
            item.setFlag(number(json, "flag"));
            item.setBody(bytes(json.get("body").getAsString()));
            MessageAccessor.setProperties(item, properties(json));
            items.add(item);
        }
        return MessageDecoder.encodeMessages(items);
    }

    private static void fill(MessageExt message, JsonObject json) throws UnknownHostException {
        message.setTopic(json.get("topic").getAsString());
        message.setQueueId(number(json, "queue_id"));
        message.setFlag(number(json, "flag"));
        message.setSysFlag(number(json, "sys_flag"));
        message.setReconsumeTimes(number(json, "reconsume_times"));
        message.setPreparedTransactionOffset(json.has("prepared_transaction_offset") ? json.get("prepared_transaction_offset").getAsLong() : 0);
        message.setBornTimestamp(json.has("born_timestamp") ? json.get("born_timestamp").getAsLong() : System.currentTimeMillis());
        message.setBornHost(host(json, "born_host"));
        if (isIpv6(message.getBornHost())) message.setBornHostV6Flag();
        message.setStoreHost(host(json, "store_host"));
        if (isIpv6(message.getStoreHost())) message.setStoreHostAddressV6Flag();
        MessageAccessor.setProperties(message, properties(json));
        if (json.has("body")) message.setBody(bytes(json.get("body").getAsString()));
    }

    private static int number(JsonObject json, String name) {
        return json.has(name) ? json.get(name).getAsInt() : 0;
    }

    private static Map<String, String> properties(JsonObject json) {
        Map<String, String> properties = new HashMap<>();
        if (json.has("properties")) {
            for (Map.Entry<String, JsonElement> property : json.getAsJsonObject("properties").entrySet()) properties.put(property.getKey(), property.getValue().getAsString());
        }
        return properties;
    }

    /** `address:port`; 127.0.0.1:10911 where the message names none. */
    private static InetSocketAddress host(JsonObject json, String name) throws UnknownHostException {
        String text = json.has(name) ? json.get(name).getAsString() : "127.0.0.1:10911";
        int colon = text.lastIndexOf(':');
        return new InetSocketAddress(InetAddress.getByName(text.substring(0, colon)), Integer.parseInt(text.substring(colon + 1)));
    }

    private static boolean isIpv6(java.net.SocketAddress host) {
        return ((InetSocketAddress) host).getAddress() instanceof Inet6Address;
    }

    private static byte[] bytes(String hex) {
        ByteBuffer bytes = ByteBuffer.allocate(hex.length() / 2);
        for (int i = 0; i < hex.length(); i += 2) bytes.put((byte) Integer.parseInt(hex.substring(i, i + 2), 16));
        return bytes.array();
    }
}
