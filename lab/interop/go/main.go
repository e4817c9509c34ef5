// What an unmodified Go program does with a broker: main NAMESRV TOPIC STEPS, the last one a topic for messages in order.
// Prints one JSON object: what became of each send, and what each consumer got.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const most = 60 * time.Second

var namesrv string

type message struct {
	Body    string `json:"body"`
	Tags    string `json:"tags"`
	Keys    string `json:"keys"`
	QueueID int    `json:"queue_id"`
	Offset  int64  `json:"queue_offset"`
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func newMessage(topic, tag, body string) *primitive.Message {
	return primitive.NewMessage(topic, []byte(body)).WithTag(tag).WithKeys([]string{"key-" + body})
}

func status(result *primitive.SendResult, err error) string {
	if err != nil {
		return err.Error()
	}
	if result.Status != primitive.SendOK {
		return fmt.Sprint("status ", result.Status)
	}
	return "SEND_OK"
}

func send(topic, steps string) map[string]string {
	told := map[string]string{}
	p, err := rocketmq.NewProducer(producer.WithNameServer([]string{namesrv}), producer.WithGroupName("go-producers"),
		producer.WithQueueSelector(producer.NewHashQueueSelector()), producer.WithSendMsgTimeout(time.Minute)) // a busy machine
	check(err)
	check(p.Start())
	ctx := context.Background()
	for _, tag := range []string{"a", "b", "c"} {
		told["sync-"+tag] = status(p.SendSync(ctx, newMessage(topic, tag, "sync-"+tag)))
	}
	var waiting sync.WaitGroup
	var lock sync.Mutex
	for i := 0; i < 3; i++ {
		body := fmt.Sprint("async-", i)
		waiting.Add(1)
		check(p.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
			lock.Lock()
			told[body] = status(result, err)
			lock.Unlock()
			waiting.Done()
		}, newMessage(topic, "a", body)))
	}
	waiting.Wait()
	check(p.SendOneWay(ctx, newMessage(topic, "b", "oneway")))
	var batch []*primitive.Message
	for i := 0; i < 3; i++ {
		batch = append(batch, newMessage(topic, "c", fmt.Sprint("batch-", i)))
	}
	told["batch"] = status(p.SendSync(ctx, batch...))
	for i := 0; i < 20; i++ {
		order := []string{"x", "y"}[i%2]
		body := fmt.Sprintf("%s-%02d", order, i)
		told[body] = status(p.SendSync(ctx, newMessage(steps, order, body).WithShardingKey(order)))
	}
	check(p.Shutdown())
	return told
}

// push returns what a new group is given: the first so many messages, in the order in which they come.
func push(topic, group, expression string, count int, options ...consumer.Option) []message {
	got := make(chan message, 1000)
	options = append(options, consumer.WithNameServer([]string{namesrv}), consumer.WithGroupName(group),
		consumer.WithInstance(group), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	c, err := rocketmq.NewPushConsumer(options...)
	check(err)
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: expression}
	check(c.Subscribe(topic, selector, func(_ context.Context, list ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range list {
			got <- message{string(m.Body), m.GetTags(), m.GetKeys(), m.Queue.QueueId, m.QueueOffset}
		}
		return consumer.ConsumeSuccess, nil
	}))
	check(c.Start())
	var told []message
	for deadline := time.After(most); len(told) < count; {
		select {
		case m := <-got:
			told = append(told, m)
		case <-deadline:
			panic(fmt.Sprint(group, ": only these came: ", told))
		}
	}
	check(c.Shutdown())
	return told
}

func main() {
	namesrv = os.Args[1]
	topic, steps := os.Args[2], os.Args[3]
	rlog.SetLogLevel("fatal")
	told := map[string]interface{}{
		"sent":    send(topic, steps),
		"pushed":  push(topic, "go-all", "*", 10),
		"tagged":  push(topic, "go-some", "a || c", 8),
		"ordered": push(steps, "go-ordered", "*", 20, consumer.WithConsumerOrder(true)),
	}
	check(json.NewEncoder(os.Stdout).Encode(told))
}
