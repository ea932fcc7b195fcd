package main

import (
	"context"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// request asks with each line of --file over --topic and prints the answers.
func request(a arguments, e events, s *stop) error {
	p, err := rocketmq.NewProducer(producerOptions(a)...)
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	defer p.Shutdown()
	lines, err := a.lines()
	if err != nil {
		return err
	}
	limit := time.Duration(a.number("request-timeout-ms", 10000)) * time.Millisecond
	for _, line := range lines {
		answer, err := p.Request(context.Background(), limit, primitive.NewMessage(a["topic"], line))
		if err != nil {
			return err
		}
		e.emit("reply", fields{"body": answer.Body, "properties": answer.GetProperties()})
	}
	return nil
}

// reply answers each request of --topic with "re: " and its text.
func reply(a arguments, e events, s *stop) error {
	p, err := rocketmq.NewProducer(producerOptions(a)...)
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	defer p.Shutdown()
	a["group"] = a["consumer-group"]
	return consume(a, e, s, func(_ context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range batch {
			e.message(m)
			answer, err := consumer.CreateReplyMessage(m, nil)
			if err == nil {
				answer.Body = append([]byte("re: "), m.Body...)
				_, err = p.SendSync(context.Background(), answer)
			}
			if err != nil {
				e.emit("reply_failed", fields{"error": err.Error()})
			} else {
				e.emit("replied", nil)
			}
		}
		return consumer.ConsumeSuccess, nil
	})
}
