// A producer, a push consumer and a simple consumer of golang/v5. For each line of standard input, a prefix, one message
// of each kind is sent.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

var output sync.Mutex

func tell(format string, values ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Printf(format+"\n", values...)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	endpoint, topic, group := os.Args[1], os.Args[2], os.Args[3]
	config := func(group string) *rocketmq.Config {
		return &rocketmq.Config{Endpoint: endpoint, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{}}
	}
	all := map[string]*rocketmq.FilterExpression{topic: rocketmq.SUB_ALL}
	producer, err := rocketmq.NewProducer(config(""), rocketmq.WithTopics(topic),
		rocketmq.WithTransactionChecker(&rocketmq.TransactionChecker{
			Check: func(message *rocketmq.MessageView) rocketmq.TransactionResolution {
				tell("asked %s", message.GetBody())
				return rocketmq.COMMIT
			},
		}))
	check(err)
	check(producer.Start())
	push, err := rocketmq.NewPushConsumer(config(group+"_push"),
		rocketmq.WithPushAwaitDuration(5*time.Second),
		rocketmq.WithPushSubscriptionExpressions(all),
		rocketmq.WithPushConsumptionThreadCount(4),
		rocketmq.WithPushMaxCacheMessageCount(64),
		rocketmq.WithPushMessageListener(&rocketmq.FuncMessageListener{
			Consume: func(message *rocketmq.MessageView) rocketmq.ConsumerResult {
				body := strings.TrimSpace(string(message.GetBody()))
				tell("push %s %d", body, message.GetDeliveryAttempt())
				if strings.HasSuffix(body, "keyed") && message.GetDeliveryAttempt() == 1 {
					return rocketmq.FAILURE
				}
				return rocketmq.SUCCESS
			},
		}))
	check(err)
	check(push.Start())
	simple, err := rocketmq.NewSimpleConsumer(config(group+"_simple"),
		rocketmq.WithSimpleAwaitDuration(5*time.Second),
		rocketmq.WithSimpleSubscriptionExpressions(all))
	check(err)
	check(simple.Start())
	go receive(simple)
	tell("started")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		sendAll(producer, topic, strings.TrimSpace(lines.Text()))
		tell("sent %s", strings.TrimSpace(lines.Text()))
	}
}

func receive(consumer rocketmq.SimpleConsumer) {
	for {
		messages, err := consumer.Receive(context.Background(), 16, 20*time.Second)
		if err != nil {
			time.Sleep(200 * time.Millisecond)
			continue
		}
		for _, message := range messages {
			if consumer.Ack(context.Background(), message) == nil {
				tell("simple %s %d", strings.TrimSpace(string(message.GetBody())), message.GetDeliveryAttempt())
			}
		}
	}
}

func sendAll(producer rocketmq.Producer, topic string, prefix string) {
	send := func(kind string, change func(*rocketmq.Message)) {
		message := &rocketmq.Message{Topic: topic, Body: []byte(prefix + "-" + kind)}
		change(message)
		_, err := producer.Send(context.Background(), message)
		check(err)
	}
	// The client waits for no connection, so what it sends right after a start of the broker fails.
	for left := 100; ; left-- {
		_, err := producer.Send(context.Background(), &rocketmq.Message{Topic: topic, Body: []byte(prefix + "-normal")})
		if err == nil {
			break
		}
		if left == 0 {
			log.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
	}
	send("keyed", func(message *rocketmq.Message) {
		message.SetTag("blue")
		message.SetKeys("k1", "k2")
		message.AddProperty("color", "red")
	})
	send("fifo", func(message *rocketmq.Message) { message.SetMessageGroup("g") })
	send("delayed", func(message *rocketmq.Message) { message.SetDelayTimestamp(time.Now().Add(900 * time.Millisecond)) })
	for _, end := range []string{"commit", "rollback", "orphan"} {
		transaction := producer.BeginTransaction()
		message := &rocketmq.Message{Topic: topic, Body: []byte(prefix + "-" + end)}
		_, err := producer.SendWithTransaction(context.Background(), message, transaction)
		check(err)
		switch end {
		case "commit":
			check(transaction.Commit())
		case "rollback":
			check(transaction.RollBack())
		}
	}
}
