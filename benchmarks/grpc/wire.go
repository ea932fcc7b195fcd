package main

import (
	"encoding/binary"
	"fmt"
)

// raw passes messages through as bytes.
type raw struct{}

func (raw) Marshal(value any) ([]byte, error) { return value.([]byte), nil }

func (raw) Unmarshal(data []byte, value any) error {
	*value.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func (raw) Name() string { return "proto" }

// Values of apache.rocketmq.v2.
const (
	codeOK             = 20000
	codeNothing        = 40401
	producerKind       = 1
	simpleConsumerKind = 3
	languageGo         = 3
	normalMessage      = 1
	identityEncoding   = 1
	filterByTag        = 1
)

func text(to []byte, number int, value []byte) []byte {
	to = binary.AppendUvarint(to, uint64(number)<<3|2)
	to = binary.AppendUvarint(to, uint64(len(value)))
	return append(to, value...)
}

func varint(to []byte, number int, value uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(to, uint64(number)<<3), value)
}

// named returns a Resource.
func named(name string) []byte { return text(nil, 2, []byte(name)) }

func seconds(count uint64) []byte { return varint(nil, 1, count) }

// settings returns the TelemetryCommand of a client: its settings.
func settings(kind uint64) []byte {
	own := varint(nil, 1, kind)
	own = text(own, 4, seconds(10))
	if kind == producerKind {
		own = text(own, 5, varint(text(nil, 1, named(topic)), 2, 4<<20))
	} else {
		filter := text(varint(nil, 1, filterByTag), 2, []byte("*"))
		entry := text(text(nil, 1, named(topic)), 2, filter)
		own = text(own, 6, text(text(text(nil, 1, named(group)), 2, entry), 5, seconds(10)))
	}
	own = text(own, 7, text(varint(nil, 1, languageGo), 2, []byte("5.1.2")))
	return text(nil, 2, own)
}

func heartbeat(kind uint64) []byte {
	if kind == producerKind {
		return varint(nil, 2, kind)
	}
	return varint(text(nil, 1, named(group)), 2, kind)
}

func sendRequest(body []byte, count int, number int64) []byte {
	var request []byte
	for place := range count {
		system := text(nil, 3, []byte(fmt.Sprintf("01%030X", number*1000+int64(place))))
		system = varint(varint(system, 5, identityEncoding), 6, normalMessage)
		system = text(text(system, 7, seconds(1_700_000_000)), 8, []byte("load"))
		system = varint(system, 13, 0)
		message := text(text(nil, 1, named(topic)), 2, text(text(nil, 1, []byte("color")), 2, []byte("red")))
		request = text(request, 1, text(text(message, 3, system), 4, body))
	}
	return request
}

func receiveRequest() []byte {
	broker := text(nil, 1, []byte("broker-a"))
	queue := text(varint(text(nil, 1, named(topic)), 3, 4), 4, broker)
	request := text(text(nil, 1, named(group)), 2, queue)
	request = text(request, 3, text(varint(nil, 1, filterByTag), 2, []byte("*")))
	request = varint(request, 4, 1)
	return text(text(request, 5, seconds(60)), 7, seconds(1))
}

func ackRequest(message []byte) []byte {
	system := field(message, 3)
	entry := text(text(nil, 1, field(system, 3)), 2, field(system, 12))
	return text(text(text(nil, 1, named(group)), 2, named(topic)), 3, entry)
}

// field returns a field of a message that has a length, or nil.
func field(message []byte, number uint64) []byte {
	for len(message) > 0 {
		tag, size := binary.Uvarint(message)
		value, width := binary.Uvarint(message[size:])
		message = message[size+width:]
		if tag&7 == 2 {
			if tag>>3 == number {
				return message[:value]
			}
			message = message[value:]
		}
	}
	return nil
}

// status returns the code of an answer.
func status(answer []byte) uint64 {
	code, _ := binary.Uvarint(field(answer, 1)[1:])
	return code
}
