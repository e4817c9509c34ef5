package reput.interop;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.ConsumeQueueExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/** All that the open store shows. */
final class Dump {
    /** Where a record says its own offset; MessageDecoder's name for it differs between versions. */
    private static final int COMMIT_LOG_OFFSET = 28;

    private Dump() {
    }

    /** ends: the log's; records: each with its message; queues: each with its units and the messages of getMessage. */
    static Object dump(OpenStore open) throws Exception {
        open.awaitDispatch();
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("ends", open.ends());
        told.put("records", records(open.store()));
        List<Object> queues = new ArrayList<>();
        for (String kind : new String[] {"consumequeue", "batchconsumequeue"}) {
            for (Path topic : folders(Paths.get(open.path(), kind))) {
                for (Path queue : folders(topic)) queues.add(queue(open.store(), topic.getFileName().toString(), Integer.parseInt(queue.getFileName().toString())));
            }
        }
        told.put("queues", queues);
        return told;
    }

    /** Commit log offsets of queryMessage for each of `keys` under `topic`, at most `max_num`, any time. */
    static Object query(OpenStore open, JsonObject arguments) throws Exception {
        open.awaitDispatch();
        String topic = arguments.get("topic").getAsString();
        Map<String, Object> found = new LinkedHashMap<>();
        for (JsonElement key : arguments.getAsJsonArray("keys")) {
            QueryMessageResult result = open.store().queryMessage(topic, key.getAsString(), arguments.get("max_num").getAsInt(), 0, Long.MAX_VALUE);
            found.put(key.getAsString(), result.getMessageBufferList().stream().map(buffer -> buffer.getLong(COMMIT_LOG_OFFSET)).collect(Collectors.toList()));
            result.release();
        }
        return found;
    }

    /** Every record from the log's first to its last as dispatch reads it, blank ones without a message. */
    private static List<Object> records(DefaultMessageStore store) {
        List<Object> records = new ArrayList<>();
        long fileSize = store.getMessageStoreConfig().getMappedFileSizeCommitLog();
        long offset = Math.max(0, store.getMinPhyOffset());
        while (offset < store.getMaxPhyOffset()) {
            SelectMappedBufferResult data = store.getCommitLog().getData(offset, false);
            DispatchRequest request = store.getCommitLog().checkMessageAndReturnSize(data.getByteBuffer(), true, false);
            data.release();
            if (!request.isSuccess()) throw new IllegalStateException("no readable record at " + offset);
            Map<String, Object> record = new LinkedHashMap<>();
            record.put("commit_log_offset", offset);
            if (request.getMsgSize() == 0) {
                offset += fileSize - offset % fileSize;
            } else {
                record.put("message", message(store.lookMessageByOffset(offset)));
                offset += request.getMsgSize();
            }
            records.add(record);
        }
        return records;
    }

    private static Object queue(DefaultMessageStore store, String topic, int queueId) throws Exception {
        long min = store.getMinOffsetInQueue(topic, queueId);
        long max = store.getMaxOffsetInQueue(topic, queueId);
        Map<String, Object> queue = new LinkedHashMap<>();
        queue.put("topic", topic);
        queue.put("queue_id", queueId);
        queue.put("min_offset", min);
        queue.put("max_offset", max);
        Object found = store.findConsumeQueue(topic, queueId);
        queue.put("units", found instanceof ConsumeQueue ? units((ConsumeQueue) found, min, max) : batchUnits(found, min, max));
        queue.put("messages", messages(store, topic, queueId, min, max));
        return queue;
    }

    /** [commit log offset, size, tags code], and of an extended unit [tags code, store time, bit map] behind these. */
    private static List<Object> units(ConsumeQueue queue, long min, long max) {
        List<Object> units = new ArrayList<>();
        for (long offset = min; offset < max; offset++) {
            SelectMappedBufferResult data = queue.getIndexBuffer(offset);
            if (data == null) continue;   // 4.9.7: the minimum of a queue whose messages are all deleted is 0, wherever its files begin
            ByteBuffer buffer = data.getByteBuffer();
            List<Object> unit = new ArrayList<>(List.of(buffer.getLong(), buffer.getInt(), buffer.getLong()));
            data.release();
            if (ConsumeQueueExt.isExtAddr((long) unit.get(2))) {
                ConsumeQueueExt.CqExtUnit ext = queue.getExt((long) unit.get(2));
                unit.add(List.of(ext.getTagsCode(), ext.getMsgStoreTime(), hex(ext.getFilterBitMap())));
            }
            units.add(unit);
        }
        return units;
    }

    /** [commit log offset, size, tags code, store time, base offset, batch size, compacted offset, reserved] of 5.x's BatchConsumeQueue. */
    private static List<Object> batchUnits(Object queue, long min, long max) throws ReflectiveOperationException {
        List<Object> units = new ArrayList<>();
        for (long offset = min; offset < max; ) {
            SelectMappedBufferResult data = (SelectMappedBufferResult) queue.getClass().getMethod("getBatchMsgIndexBuffer", long.class).invoke(queue, offset);
            ByteBuffer b = data.getByteBuffer();
            List<Object> unit = List.of(b.getLong(), b.getInt(), b.getLong(), b.getLong(), b.getLong(), b.getShort(), b.getInt(), b.getInt());
            data.release();
            units.add(unit);
            offset = (long) unit.get(4) + (short) unit.get(5);
        }
        return units;
    }

    /** What a consumer gets that pulls from the first to the last; a turn without messages is [offset, status, next], and so is what is no message. */
    private static List<Object> messages(DefaultMessageStore store, String topic, int queueId, long min, long max) throws Exception {
        List<Object> messages = new ArrayList<>();
        for (long offset = min; offset < max; ) {
            GetMessageResult result = store.getMessage("interop", topic, queueId, offset, 32, null);
            long next = result.getNextBeginOffset();
            for (ByteBuffer buffer : result.getMessageBufferList()) {
                MessageExt found = MessageDecoder.decode(buffer.duplicate(), true, false);
                messages.add(found == null ? List.of(offset, "UNREADABLE", next) : message(found));
            }
            if (result.getMessageCount() == 0) messages.add(List.of(offset, result.getStatus().name(), next));
            result.release();
            if (next <= offset) break;
            offset = next;
        }
        return messages;
    }

    private static Map<String, Object> message(MessageExt m) {
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("topic", m.getTopic());
        told.put("body", hex(m.getBody()));
        told.put("properties", new TreeMap<>(m.getProperties() == null ? Map.of() : m.getProperties()));
        told.put("flag", m.getFlag());
        told.put("queue_id", m.getQueueId());
        told.put("queue_offset", m.getQueueOffset());
        told.put("commit_log_offset", m.getCommitLogOffset());
        told.put("store_size", m.getStoreSize());
        told.put("sys_flag", m.getSysFlag());
        told.put("born_timestamp", m.getBornTimestamp());
        told.put("born_host", host(m.getBornHost()));
        told.put("store_timestamp", m.getStoreTimestamp());
        told.put("store_host", host(m.getStoreHost()));
        told.put("reconsume_times", m.getReconsumeTimes());
        told.put("prepared_transaction_offset", m.getPreparedTransactionOffset());
        told.put("body_crc", m.getBodyCRC());
        return told;
    }

    /** The address in hex, as text forms of IPv6 differ, and the port. */
    private static String host(SocketAddress host) {
        InetSocketAddress address = (InetSocketAddress) host;
        return hex(address.getAddress().getAddress()) + ":" + address.getPort();
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte b : bytes == null ? new byte[0] : bytes) text.append(String.format("%02x", b));
        return text.toString();
    }

    private static List<Path> folders(Path parent) throws IOException {
        if (!Files.isDirectory(parent)) return List.of();
        try (Stream<Path> paths = Files.list(parent)) {
            return paths.filter(Files::isDirectory).sorted().collect(Collectors.toList());
        }
    }
}
