package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// A frame is: length | header length | JSON header | body.
func frame(header, body string) []byte {
	out := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)+len(body)))
	out = binary.BigEndian.AppendUint32(out, uint32(len(header)))
	return append(append(out, header...), body...)
}

// readFrame returns the header and the length of the body, which it skips.
func readFrame(in *bufio.Reader) (header string, body int, err error) {
	var head [8]byte
	if _, err = io.ReadFull(in, head[:]); err != nil {
		return "", 0, err
	}
	length := int(binary.BigEndian.Uint32(head[4:]) & 0xFFFFFF)
	text := make([]byte, length)
	if _, err = io.ReadFull(in, text); err != nil {
		return "", 0, err
	}
	body = int(binary.BigEndian.Uint32(head[:4])) - 4 - length
	_, err = in.Discard(body)
	return string(text), body, err
}

// rocketSender sends one message again and again: SEND_MESSAGE_V2 with the properties of a real client.
type rocketSender struct{ frame []byte }

func newRocketSender(queue int, body string) *rocketSender {
	properties := `UNIQ_KEY\u00017F0000010000000000000000%08d\u0002WAIT\u0001true\u0002`
	header := fmt.Sprintf(`{"code":310,"flag":0,"language":"GO","opaque":1,"version":399,"serializeTypeCurrentRPC":"JSON",`+
		`"extFields":{"a":"bench","b":"Bench","c":"TBW102","d":"4","e":"%d","f":"0","g":"1700000000000","h":"0","i":"`+
		properties+`","j":"0","k":"false","m":"false"}}`, queue, queue)
	return &rocketSender{frame(header, body)}
}

func (s *rocketSender) request(out *bufio.Writer, _ int) error {
	_, err := out.Write(s.frame)
	return err
}

func (s *rocketSender) response(in *bufio.Reader) (int, error) {
	header, _, err := readFrame(in)
	if err == nil && !succeeded(header) {
		err = fmt.Errorf("the broker refused a send: %s", header)
	}
	return 1, err
}

// succeeded finds the code 0 in a JSON header.
func succeeded(header string) bool {
	const key = `"code":0`
	for at := 0; at+len(key) < len(header); at++ {
		if header[at:at+len(key)] == key {
			return header[at+len(key)] == ',' || header[at+len(key)] == '}'
		}
	}
	return false
}

// rocketFetcher walks through a queue in pulls of `batch` messages, again and again.
type rocketFetcher struct{ queue int }

func (f *rocketFetcher) request(out *bufio.Writer, number int) error {
	offset := number * *batch % (*stored / *batch * *batch)
	header := fmt.Sprintf(`{"code":11,"flag":0,"language":"GO","opaque":1,"version":399,"serializeTypeCurrentRPC":"JSON",`+
		`"extFields":{"consumerGroup":"bench","topic":"Bench","queueId":"%d","queueOffset":"%d","maxMsgNums":"%d","sysFlag":"4",`+
		`"commitOffset":"0","suspendTimeoutMillis":"0","subscription":"*","subVersion":"0","expressionType":"TAG"}}`,
		f.queue, offset, *batch)
	_, err := out.Write(frame(header, ""))
	return err
}

func (f *rocketFetcher) response(in *bufio.Reader) (int, error) {
	header, body, err := readFrame(in)
	if err == nil && (!succeeded(header) || body < *batch**size) {
		err = fmt.Errorf("a pull of %d messages brought %d bytes: %s", *batch, body, header)
	}
	return *batch, err
}
