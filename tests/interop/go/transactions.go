package main

import (
	"context"
	"strconv"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// decider answers in turn: line n gets entry n % length.
type decider struct {
	decisions, checks []string
	events            events
}

func (d decider) state(decisions []string, line string) primitive.LocalTransactionState {
	number, _ := strconv.Atoi(line)
	if len(decisions) == 0 {
		return primitive.UnknowState
	}
	switch decisions[number%len(decisions)] {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (d decider) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	return d.state(d.decisions, m.GetProperty("line"))
}

func (d decider) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	line := m.GetProperty("line")
	number, _ := strconv.Atoi(line)
	d.events.emit("checked", fields{"line": number, "msg_id": m.MsgId, "transaction_id": m.TransactionId})
	return d.state(d.checks, line)
}

// transaction sends each line of --file as a transactional message; --decide commit,rollback,unknown answers in turn, --check
// does so when the broker asks. It stays up for the broker's questions until it is stopped.
func transaction(a arguments, e events, s *stop) error {
	p, err := rocketmq.NewTransactionProducer(decider{a.list("decide"), a.list("check"), e}, producerOptions(a)...)
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	defer p.Shutdown()
	all, err := messages(a)
	if err != nil {
		return err
	}
	for number, m := range all {
		result, err := p.SendMessageInTransaction(context.Background(), m)
		if err != nil {
			return err
		}
		e.sent(number, result.SendResult)
	}
	e.emit("all_sent", nil)
	s.wait()
	return nil
}
