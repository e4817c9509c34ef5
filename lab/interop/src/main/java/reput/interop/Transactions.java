package reput.interop;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A producer of transactions, whose messages say how they end. */
final class Transactions {
    private static final long MOST_S = 60;

    private Transactions() {}

    private static LocalTransactionState state(String word) {
        if (word.equals("commit")) return LocalTransactionState.COMMIT_MESSAGE;
        return word.equals("rollback") ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
    }

    /** topic, bodies, checks: send these, and stay until so many others were checked: "commit" ends at once, "checked-commit" when asked. */
    static Object run(JsonObject arguments) throws Exception {
        LinkedBlockingQueue<String> checked = new LinkedBlockingQueue<>();
        TransactionMQProducer producer = new TransactionMQProducer("transactions");
        producer.setNamesrvAddr(arguments.get("namesrv").getAsString());
        producer.setVipChannelEnabled(false);
        producer.setSendMsgTimeout(30_000);
        producer.setHeartbeatBrokerInterval(1000);   // a broker asks those that it knows
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return state(new String(message.getBody(), StandardCharsets.UTF_8));
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                if (body.startsWith("checked-")) checked.add(body);   // of one that has just ended a broker may ask, too
                return state(body.substring(body.indexOf('-') + 1));
            }
        });
        producer.start();
        try {
            String topic = arguments.get("topic").getAsString();
            Map<String, Object> sent = new LinkedHashMap<>();
            for (JsonElement body : arguments.get("bodies").getAsJsonArray()) {
                Message message = new Message(topic, body.getAsString().getBytes(StandardCharsets.UTF_8));
                sent.put(body.getAsString(), producer.sendMessageInTransaction(message, null).getLocalTransactionState().name());
            }
            if (sent.isEmpty()) producer.getDefaultMQProducerImpl().getmQClientFactory().updateTopicRouteInfoFromNameServer(topic);
            TreeSet<String> names = new TreeSet<>();
            while (names.size() < arguments.get("checks").getAsInt()) {
                String one = checked.poll(MOST_S, TimeUnit.SECONDS);
                if (one == null) throw new IllegalStateException("no check in " + MOST_S + " s after " + names);
                names.add(one);
            }
            Map<String, Object> told = new LinkedHashMap<>();
            told.put("sent", sent);
            told.put("checked", names);
            return told;
        } finally {
            producer.shutdown();
        }
    }
}
