import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

public class Orders {
    public static void main(String[] words) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("shop");
        producer.start();
        var sent = producer.send(new Message("orders", "paid", "o-10", "{\"total\": 30}".getBytes()));
        System.out.println("sent: " + sent.getSendStatus());
        producer.shutdown();

        CountDownLatch left = new CountDownLatch(2);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("accounting");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("orders", "paid");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (var message : messages) {
                System.out.println("received: " + message.getKeys() + " " + new String(message.getBody()));
                left.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        left.await(30, TimeUnit.SECONDS);
        consumer.shutdown();
    }
}
