package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// greet reads the server's INFO and introduces this side. No answers to every line (verbose), no checks of subjects.
func greet(in *bufio.Reader, out *bufio.Writer) error {
	if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "INFO ") {
		return fmt.Errorf("not a NATS server: %q %v", line, err)
	}
	_, err := out.WriteString("CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true}\r\n")
	return err
}

// readMessage returns the payload of the next MSG or HMSG; of one with headers only what follows them. `status` is the
// first line of its headers. It responds to PING.
func readMessage(in *bufio.Reader, out *bufio.Writer) (payload []byte, status string, err error) {
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return nil, "", err
		}
		words := bytes.Fields(line)
		switch {
		case len(words) == 0:
		case string(words[0]) == "PING":
			if _, err = out.WriteString("PONG\r\n"); err != nil {
				return nil, "", err
			}
		case string(words[0]) == "MSG", string(words[0]) == "HMSG":
			return readPayload(in, words)
		case string(words[0]) == "-ERR":
			return nil, "", fmt.Errorf("the server said: %s", line)
		}
	}
}

func readPayload(in *bufio.Reader, words [][]byte) (payload []byte, status string, err error) {
	total, err := strconv.Atoi(string(words[len(words)-1]))
	if err != nil {
		return nil, "", err
	}
	headers := 0
	if string(words[0]) == "HMSG" {
		if headers, err = strconv.Atoi(string(words[len(words)-2])); err != nil {
			return nil, "", err
		}
	}
	data := make([]byte, total+2)
	if _, err = io.ReadFull(in, data); err != nil {
		return nil, "", err
	}
	if headers > 0 {
		status, _, _ = strings.Cut(string(data[:headers]), "\r\n")
	}
	return data[headers:total], status, nil
}

// ask sends one request of the JetStream API and returns the response.
func ask(in *bufio.Reader, out *bufio.Writer, subject, text string) (string, error) {
	fmt.Fprintf(out, "SUB _INBOX.ask 9\r\nUNSUB 9 1\r\nPUB %s _INBOX.ask %d\r\n%s\r\n", subject, len(text), text)
	if err := out.Flush(); err != nil {
		return "", err
	}
	answer, _, err := readMessage(in, out)
	if err == nil && bytes.Contains(answer, []byte(`"error"`)) {
		err = fmt.Errorf("%s: %s", subject, answer)
	}
	return string(answer), err
}

// makeStream makes the stream Bench in files, with the subjects Bench.0, Bench.1, ...
func makeStream(address string) error {
	socket, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer socket.Close()
	in, out := bufio.NewReader(socket), bufio.NewWriter(socket)
	if err := greet(in, out); err != nil {
		return err
	}
	_, err = ask(in, out, "$JS.API.STREAM.CREATE.Bench",
		`{"name":"Bench","subjects":["Bench.*"],"storage":"file","retention":"limits","num_replicas":1}`)
	return err
}

// natsSender publishes with acknowledgements, which come to one inbox.
type natsSender struct {
	publish []byte
	out     *bufio.Writer
}

func newNatsSender(number int, body string, in *bufio.Reader, out *bufio.Writer) (peer, error) {
	if err := greet(in, out); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "SUB _INBOX.acks%d 1\r\n", number)
	publish := fmt.Sprintf("PUB Bench.%d _INBOX.acks%d %d\r\n%s\r\n", number, number, len(body), body)
	return &natsSender{[]byte(publish), out}, nil
}

func (s *natsSender) request(out *bufio.Writer, _ int) error {
	_, err := out.Write(s.publish)
	return err
}

func (s *natsSender) response(in *bufio.Reader) (int, error) {
	payload, status, err := readMessage(in, s.out)
	if err == nil && (!bytes.Contains(payload, []byte(`"seq"`)) || bytes.Contains(payload, []byte(`"error"`))) {
		err = fmt.Errorf("the server refused a message: %s %s", status, payload)
	}
	return 1, err
}

// natsFetcher fetches batches of a subject through a pull consumer without acknowledgements; when it has read all, it
// makes another.
type natsFetcher struct {
	number, consumers, left int
	name                    string
	in                      *bufio.Reader
	out                     *bufio.Writer
}

func newNatsFetcher(number int, in *bufio.Reader, out *bufio.Writer) (peer, error) {
	if *window != 1 {
		return nil, fmt.Errorf("fetches from NATS need -window 1: a batch follows the other")
	}
	if err := greet(in, out); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "SUB _INBOX.batches%d 1\r\n", number)
	return &natsFetcher{number: number, in: in, out: out}, nil
}

func (f *natsFetcher) request(out *bufio.Writer, _ int) error {
	if f.left < *batch {
		f.consumers++
		f.left = *stored
		f.name = fmt.Sprintf("fetch-%d-%d", f.number, f.consumers)
		_, err := ask(f.in, out, "$JS.API.CONSUMER.CREATE.Bench."+f.name, fmt.Sprintf(
			`{"stream_name":"Bench","config":{"name":"%s","ack_policy":"none","deliver_policy":"all",`+
				`"filter_subject":"Bench.%d","inactive_threshold":5000000000,"mem_storage":true}}`, f.name, f.number))
		if err != nil {
			return err
		}
	}
	f.left -= *batch
	text := fmt.Sprintf(`{"batch":%d,"expires":5000000000}`, *batch)
	_, err := fmt.Fprintf(out, "PUB $JS.API.CONSUMER.MSG.NEXT.Bench.%s _INBOX.batches%d %d\r\n%s\r\n",
		f.name, f.number, len(text), text)
	return err
}

func (f *natsFetcher) response(in *bufio.Reader) (int, error) {
	for range *batch {
		payload, status, err := readMessage(in, f.out)
		if err == nil && len(payload) != *size {
			err = fmt.Errorf("a fetch brought %d bytes instead of a message: %s", len(payload), status)
		}
		if err != nil {
			return 0, err
		}
	}
	return *batch, nil
}
