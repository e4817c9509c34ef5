// What an unmodified Go program does with a gRPC proxy: main PROXY TOPIC, for the topics and groups TOPIC-normal and so on.
// Prints one JSON object: the ids of what was sent, and what each consumer got.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

const most = 60 * time.Second

var proxy, prefix string

type message struct {
	Body    string   `json:"body"`
	Tag     string   `json:"tag"`
	Keys    []string `json:"keys"`
	Attempt int32    `json:"attempt"`
	ID      string   `json:"id"`
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func viewed(m *rmq.MessageView) message {
	told := message{Body: string(m.GetBody()), Keys: m.GetKeys(), Attempt: m.GetDeliveryAttempt(), ID: m.GetMessageId()}
	if tag := m.GetTag(); tag != nil {
		told.Tag = *tag
	}
	return told
}

func config(group string) *rmq.Config {
	return &rmq.Config{Endpoint: proxy, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{}}
}

func newMessage(kind, body string) *rmq.Message {
	return &rmq.Message{Topic: prefix + "-" + kind, Body: []byte(body)}
}

func subscription(kind, tags string) map[string]*rmq.FilterExpression {
	return map[string]*rmq.FilterExpression{prefix + "-" + kind: rmq.NewFilterExpression(tags)}
}

// send returns the ids by bodies.
func send(p rmq.Producer) map[string]string {
	told := map[string]string{}
	one := func(m *rmq.Message) {
		receipts, err := p.Send(context.Background(), m)
		check(err)
		told[string(m.Body)] = receipts[0].MessageID
	}
	for i := 0; i < 9; i++ {
		m := newMessage("normal", fmt.Sprint("m-", i))
		m.SetTag([]string{"a", "b", "c"}[i%3])
		m.SetKeys("key-"+fmt.Sprint(i), "every")
		one(m)
	}
	for i := 0; i < 20; i++ {
		group := []string{"x", "y"}[i%2]
		m := newMessage("fifo", fmt.Sprintf("%s-%02d", group, i))
		m.SetMessageGroup(group)
		one(m)
	}
	return told
}

// transact leaves one transaction open, which the broker asks for.
func transact() rmq.Producer {
	checker := &rmq.TransactionChecker{Check: func(*rmq.MessageView) rmq.TransactionResolution { return rmq.COMMIT }}
	p, err := rmq.NewProducer(config(""), rmq.WithTopics(prefix+"-transaction"), rmq.WithTransactionChecker(checker))
	check(err)
	check(p.Start())
	for _, body := range []string{"commit", "rollback", "checked"} {
		transaction := p.BeginTransaction()
		_, err := p.SendWithTransaction(context.Background(), newMessage("transaction", body), transaction)
		check(err)
		switch body {
		case "commit":
			check(transaction.Commit())
		case "rollback":
			check(transaction.RollBack())
		}
	}
	return p
}

// receive acks all messages. The first comes again, since it is made visible instead.
func receive(count int) []message {
	c, err := rmq.NewSimpleConsumer(config(prefix+"-simple"), rmq.WithSimpleAwaitDuration(5*time.Second),
		rmq.WithSimpleSubscriptionExpressions(subscription("normal", "*")))
	check(err)
	check(c.Start())
	var told []message
	for deadline := time.Now().Add(most); len(told) < count; {
		got, err := c.Receive(context.Background(), 16, 30*time.Second)
		var status *rmq.ErrRpcStatus
		if errors.As(err, &status) && status.Code == int32(v2.Code_MESSAGE_NOT_FOUND) {
			err = nil
		}
		check(err)
		if len(got) == 0 && time.Now().After(deadline) {
			panic(fmt.Sprint("only these came: ", told))
		}
		for _, m := range got {
			told = append(told, viewed(m))
			if len(told) == 1 {
				check(c.ChangeInvisibleDuration(m, time.Second))
			} else {
				check(c.Ack(context.Background(), m))
			}
		}
	}
	check(c.GracefulStop())
	return told
}

// push returns what a group is given: the first so many messages, in the order in which they come.
func push(kind, tags string, count int, began func()) []message {
	got := make(chan message, 1000)
	listener := &rmq.FuncMessageListener{Consume: func(m *rmq.MessageView) rmq.ConsumerResult {
		got <- viewed(m)
		return rmq.SUCCESS
	}}
	c, err := rmq.NewPushConsumer(config(prefix+"-"+kind), rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushSubscriptionExpressions(subscription(kind, tags)), rmq.WithPushMessageListener(listener),
		rmq.WithPushConsumptionThreadCount(4), rmq.WithPushMaxCacheMessageCount(1024))
	check(err)
	check(c.Start())
	began()
	var told []message
	for deadline := time.After(most); len(told) < count; {
		select {
		case m := <-got:
			told = append(told, m)
		case <-deadline:
			panic(fmt.Sprint(kind, ": only these came: ", told))
		}
	}
	return told
}

// delay returns how long after its time a message came, in milliseconds.
func delay(p rmq.Producer) int64 {
	var due time.Time
	push("delay", "*", 1, func() {
		due = time.UnixMilli(time.Now().Add(2 * time.Second).UnixMilli())
		m := newMessage("delay", "later")
		m.SetDelayTimestamp(due)
		_, err := p.Send(context.Background(), m)
		check(err)
	})
	return time.Since(due).Milliseconds()
}

func main() {
	proxy, prefix = os.Args[1], os.Args[2]
	transacting := transact()
	p, err := rmq.NewProducer(config(""), rmq.WithTopics(prefix+"-normal", prefix+"-fifo", prefix+"-delay"))
	check(err)
	check(p.Start())
	nothing := func() {}
	told := map[string]interface{}{
		"sent":        send(p),
		"received":    receive(10),
		"pushed":      push("normal", "a || c", 6, nothing),
		"ordered":     push("fifo", "*", 20, nothing),
		"late_ms":     delay(p),
		"transaction": push("transaction", "*", 2, nothing),
	}
	check(transacting.GracefulStop())
	check(json.NewEncoder(os.Stdout).Encode(told))
}
