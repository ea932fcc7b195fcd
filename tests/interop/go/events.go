package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

type fields = map[string]interface{}

// events prints what happens to one command. Any goroutine may call it; a line is never torn.
type events struct{ id string }

var output sync.Mutex

func (e events) emit(event string, f fields) {
	line := fields{"id": e.id, "event": event}
	for name, value := range f {
		line[name] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

func (e events) sent(line int, result *primitive.SendResult) {
	f := fields{"line": line}
	if result != nil {
		f["status"] = statusName(result.Status)
		f["msg_id"] = result.MsgID
		f["offset_msg_id"] = result.OffsetMsgID
		f["queue_offset"] = result.QueueOffset
		f["transaction_id"] = result.TransactionID
		if result.MessageQueue != nil {
			f["broker"] = result.MessageQueue.BrokerName
			f["queue"] = result.MessageQueue.QueueId
		}
	}
	e.emit("sent", f)
}

func statusName(status primitive.SendStatus) string {
	switch status {
	case primitive.SendOK:
		return "SEND_OK"
	case primitive.SendFlushDiskTimeout:
		return "FLUSH_DISK_TIMEOUT"
	case primitive.SendFlushSlaveTimeout:
		return "FLUSH_SLAVE_TIMEOUT"
	case primitive.SendSlaveNotAvailable:
		return "SLAVE_NOT_AVAILABLE"
	}
	return fmt.Sprint(int(status))
}

func (e events) message(m *primitive.MessageExt) {
	f := fields{
		"topic": m.Topic, "queue_offset": m.QueueOffset, "physical_offset": m.CommitLogOffset, "msg_id": m.MsgId,
		"offset_msg_id": m.OffsetMsgId, "tags": m.GetTags(), "keys": m.GetKeys(), "flag": m.Flag, "sys_flag": m.SysFlag,
		"reconsume_times": m.ReconsumeTimes, "born_ms": m.BornTimestamp, "store_ms": m.StoreTimestamp,
		"properties": m.GetProperties(), "body": m.Body,
	}
	if m.Queue != nil {
		f["broker"] = m.Queue.BrokerName
		f["queue"] = m.Queue.QueueId
	}
	e.emit("message", f)
}
