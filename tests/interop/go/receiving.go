package main

import (
	"bytes"
	"context"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// receive is a push consumer of --topic in --group; each message becomes an event, until it is stopped or --expect have
// come. Options: --mode push | orderly | broadcast, --tags EXPRESSION or --sql EXPRESSION, --refuse TEXT (answer
// ConsumeRetryLater to bodies that contain it), --max-reconsume, --retry-delay-level, --trace, --pull-batch.
func receive(a arguments, e events, s *stop) error {
	var count atomic.Int64
	expect := int64(a.number("expect", -1))
	return consume(a, e, s, func(ctx context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		refused := false
		for _, m := range batch {
			e.message(m)
			refused = refused || (a["refuse"] != "" && bytes.Contains(m.Body, []byte(a["refuse"])))
		}
		if total := count.Add(int64(len(batch))); total >= expect && expect >= 0 {
			s.set()
		}
		if !refused {
			return consumer.ConsumeSuccess, nil
		}
		if a["mode"] == "orderly" {
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		if context, found := primitive.GetConcurrentlyCtx(ctx); found {
			context.DelayLevelWhenNextConsume = a.number("retry-delay-level", 0)
		}
		return consumer.ConsumeRetryLater, nil
	})
}

type listener = func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

func consume(a arguments, e events, s *stop, heard listener) error {
	model := consumer.Clustering
	if a["mode"] == "broadcast" {
		model = consumer.BroadCasting
	}
	options := []consumer.Option{
		consumer.WithNsResolver(nameservers(a)),
		consumer.WithGroupName(a["group"]),
		consumer.WithInstance(instanceName()),
		consumer.WithConsumerModel(model),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(a["mode"] == "orderly"),
		consumer.WithPullBatchSize(int32(a.number("pull-batch", 32))),
		consumer.WithSuspendCurrentQueueTimeMillis(500 * time.Millisecond),
	}
	if times := a.number("max-reconsume", -1); times >= 0 {
		options = append(options, consumer.WithMaxReconsumeTimes(int32(times)))
	}
	if account, found := credentials(a); found {
		options = append(options, consumer.WithCredentials(account))
	}
	if a["trace"] == "true" {
		options = append(options, consumer.WithTrace(&primitive.TraceConfig{Access: primitive.Local, Resolver: nameservers(a)}))
	}
	c, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: a.text("tags", "*")}
	if a["sql"] != "" {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: a["sql"]}
	}
	if err := c.Subscribe(a["topic"], selector, heard); err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	e.emit("started", nil)
	s.wait()
	return c.Shutdown()
}
