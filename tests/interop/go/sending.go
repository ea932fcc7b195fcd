package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	asyncAtOnce  = 64
	onewayLinger = 300 * time.Millisecond
)

var clientCount atomic.Int64

func instanceName() string {
	return fmt.Sprintf("g%d-%d", os.Getpid(), clientCount.Add(1))
}

func nameservers(a arguments) primitive.NsResolver {
	return primitive.NewPassthroughResolver(strings.Split(a["namesrv"], ";"))
}

// credentials are those of --access-key and --secret-key, with which requests are signed.
func credentials(a arguments) (primitive.Credentials, bool) {
	return primitive.Credentials{AccessKey: a["access-key"], SecretKey: a["secret-key"]}, a["access-key"] != ""
}

// queueOfLine puts line n into queue n % count; without a count queues take turns.
type queueOfLine struct {
	count int
	turns producer.QueueSelector
}

func (s queueOfLine) Select(m *primitive.Message, queues []*primitive.MessageQueue, last string) *primitive.MessageQueue {
	if s.count == 0 {
		return s.turns.Select(m, queues, last)
	}
	line, _ := strconv.Atoi(m.GetProperty("line"))
	for _, queue := range queues {
		if queue.QueueId == line%s.count {
			return queue
		}
	}
	return nil
}

func producerOptions(a arguments) []producer.Option {
	options := []producer.Option{
		producer.WithNsResolver(nameservers(a)),
		producer.WithGroupName(a.text("group", "interop_producer")),
		producer.WithInstanceName(instanceName()),
		producer.WithRetry(a.number("retries", 2)),
		producer.WithSendMsgTimeout(time.Duration(a.number("timeout-ms", 5000)) * time.Millisecond),
		producer.WithQueueSelector(queueOfLine{a.number("order-by-queue", 0), producer.NewRoundRobinQueueSelector()}),
	}
	if account, found := credentials(a); found {
		options = append(options, producer.WithCredentials(account))
	}
	if a["trace"] == "true" {
		options = append(options, producer.WithTrace(&primitive.TraceConfig{Access: primitive.Local, Resolver: nameservers(a)}))
	}
	return options
}

func messages(a arguments) ([]*primitive.Message, error) {
	lines, err := a.lines()
	if err != nil {
		return nil, err
	}
	tags := a.list("tags")
	var all []*primitive.Message
	for number, line := range lines {
		m := primitive.NewMessage(a["topic"], line)
		m.WithProperty("line", strconv.Itoa(number))
		m.WithKeys([]string{fmt.Sprintf("%s-%d", a.text("keys", "key"), number)})
		if len(tags) > 0 {
			m.WithTag(tags[number%len(tags)])
		}
		if level := a.number("delay-level", 0); level > 0 {
			m.WithDelayTimeLevel(level)
		}
		all = append(all, m)
	}
	return all, nil
}

// sendLines makes each line of --file one message of --topic, in order. Options: --mode sync | async | oneway | batch
// (--batch-size), --order-by-queue N (line n goes to queue n % N), --tags a,b (in turn), --keys PREFIX, --delay-level,
// --trace, --pause-ms.
func sendLines(a arguments, e events, s *stop) error {
	all, err := messages(a)
	if err != nil {
		return err
	}
	p, err := rocketmq.NewProducer(producerOptions(a)...)
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	defer p.Shutdown()
	switch mode := a.text("mode", "sync"); mode {
	case "sync":
		return sendSync(p, all, a, e, s)
	case "async":
		return sendAsync(p, all, e)
	case "oneway":
		for number, m := range all {
			if err := p.SendOneWay(context.Background(), m); err != nil {
				return err
			}
			e.sent(number, nil)
		}
		// This client asks for answers and reads none: what is still on its way when it hangs up is lost to the reset.
		s.waitFor(onewayLinger)
		return nil
	case "batch":
		size := a.number("batch-size", 32)
		for begin := 0; begin < len(all); begin += size {
			result, err := p.SendSync(context.Background(), all[begin:min(begin+size, len(all))]...)
			if err != nil {
				return err
			}
			e.sent(begin, result)
		}
		return nil
	default:
		return fmt.Errorf("no mode %s", mode)
	}
}

func sendSync(p rocketmq.Producer, all []*primitive.Message, a arguments, e events, s *stop) error {
	for number, m := range all {
		result, err := p.SendSync(context.Background(), m)
		if err != nil {
			return err
		}
		e.sent(number, result)
		if s.waitFor(time.Duration(a.number("pause-ms", 0)) * time.Millisecond) {
			return nil
		}
	}
	return nil
}

func sendAsync(p rocketmq.Producer, all []*primitive.Message, e events) error {
	room := make(chan struct{}, asyncAtOnce)
	for number, m := range all {
		room <- struct{}{}
		err := p.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
			if err != nil {
				e.emit("send_failed", fields{"line": number, "error": err.Error()})
			} else {
				e.sent(number, result)
			}
			<-room
		}, m)
		if err != nil {
			return err
		}
	}
	for i := 0; i < asyncAtOnce; i++ {
		room <- struct{}{}
	}
	return nil
}
