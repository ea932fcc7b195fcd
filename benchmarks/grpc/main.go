// Load of gRPC clients: a number of calls at a time over one connection, as the clients of a process share theirs.
//
//	grpcload ADDRESS send|pair STREAMS SECONDS BYTES
//
// send: SendMessage of one message. pair: ReceiveMessage of one message and its AckMessage; more are sent first than
// will be received. The server has the topic Load. Prints one line: calls or pairs, the seconds that they took, and
// milliseconds of the median and of the slowest hundredth.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

const (
	topic         = "Load"
	group         = "LoadGroup"
	atOnce        = 32
	mostPerSecond = 15000
	timeLimit     = 10 * time.Second
	warmUp        = 5 * time.Second // a just-in-time compiler needs it
)

type client struct {
	connection *grpc.ClientConn
	kind       uint64
	requests   atomic.Int64
}

// headers returns a context with the fields that a client of RocketMQ sends with each call.
func (c *client) headers(ctx context.Context) context.Context {
	number := c.requests.Add(1)
	return metadata.AppendToOutgoingContext(ctx,
		"x-mq-language", "GO", "x-mq-protocol", "v2", "x-mq-client-version", "5.1.2",
		"x-mq-client-id", fmt.Sprintf("load-%d@1", c.kind),
		"x-mq-request-id", fmt.Sprintf("6f1c8a4e-0000-4000-8000-%012d", number),
		"x-mq-date-time", time.Now().UTC().Format("20060102T150405Z"))
}

func path(method string) string {
	return "/apache.rocketmq.v2.MessagingService/" + method
}

func (c *client) call(ctx context.Context, method string, request []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	var answer []byte
	err := c.connection.Invoke(c.headers(ctx), path(method), request, &answer)
	if err == nil {
		if code := status(answer); code != codeOK {
			return nil, fmt.Errorf("%s: status %d", method, code)
		}
	}
	return answer, err
}

// announce opens the telemetry stream and waits until the server has taken the settings.
func (c *client) announce(ctx context.Context) {
	stream, err := c.connection.NewStream(c.headers(ctx),
		&grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, path("Telemetry"))
	check(err)
	check(stream.SendMsg(settings(c.kind)))
	var answer []byte
	check(stream.RecvMsg(&answer))
	_, err = c.call(ctx, "Heartbeat", heartbeat(c.kind))
	check(err)
}

func (c *client) send(ctx context.Context, body []byte, count int) error {
	_, err := c.call(ctx, "SendMessage", sendRequest(body, count, c.requests.Load()))
	return err
}

// receive returns what is in each message, which are none if there was none to receive.
func (c *client) receive(ctx context.Context) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	stream, err := c.connection.NewStream(c.headers(ctx), &grpc.StreamDesc{ServerStreams: true}, path("ReceiveMessage"))
	if err != nil {
		return nil, err
	}
	if err = stream.SendMsg(receiveRequest()); err != nil {
		return nil, err
	}
	if err = stream.CloseSend(); err != nil {
		return nil, err
	}
	var messages [][]byte
	for {
		var answer []byte
		if err = stream.RecvMsg(&answer); err == io.EOF {
			return messages, nil
		} else if err != nil {
			return nil, err
		}
		if message := field(answer, 2); message != nil {
			messages = append(messages, message)
		} else if field(answer, 1) != nil {
			if code := status(answer); code != codeOK && code != codeNothing {
				return nil, fmt.Errorf("ReceiveMessage: status %d", code)
			}
		}
	}
}

// pair receives a message, however often that takes, and acknowledges it.
func (c *client) pair(ctx context.Context) error {
	messages, err := c.receive(ctx)
	for err == nil && len(messages) == 0 {
		messages, err = c.receive(ctx)
	}
	if err != nil {
		return err
	}
	_, err = c.call(ctx, "AckMessage", ackRequest(messages[0]))
	return err
}

// during calls a function in several goroutines and returns how long each call took.
func during(streams int, length time.Duration, one func() error) []time.Duration {
	var all []time.Duration
	var lock sync.Mutex
	var group sync.WaitGroup
	end := time.Now().Add(length)
	for range streams {
		group.Add(1)
		go func() {
			defer group.Done()
			var own []time.Duration
			for begin := time.Now(); begin.Before(end); begin = time.Now() {
				check(one())
				own = append(own, time.Since(begin))
			}
			lock.Lock()
			all = append(all, own...)
			lock.Unlock()
		}()
	}
	group.Wait()
	slices.Sort(all)
	return all
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func open(address string, kind uint64) *client {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(64<<20)))
	check(err)
	return &client{connection: connection, kind: kind}
}

// number returns an argument as a number.
func number(at int) int {
	value, err := strconv.Atoi(os.Args[at])
	check(err)
	return value
}

func main() {
	if len(os.Args) != 6 {
		log.Fatal("usage: grpcload ADDRESS send|pair STREAMS SECONDS BYTES")
	}
	ctx := context.Background()
	address, mode, streams, seconds := os.Args[1], os.Args[2], number(3), number(4)
	body := make([]byte, number(5))
	producer := open(address, producerKind)
	producer.announce(ctx)
	one := func() error { return producer.send(ctx, body, 1) }
	if mode == "pair" {
		consumer := open(address, simpleConsumerKind)
		consumer.announce(ctx)
		_, err := consumer.receive(ctx) // so that the group begins before the messages
		check(err)
		for range (seconds + int(warmUp.Seconds())) * mostPerSecond / atOnce {
			check(producer.send(ctx, body, atOnce))
		}
		one = func() error { return consumer.pair(ctx) }
	}
	during(streams, warmUp, one)
	fmt.Println("warm")
	begin := time.Now()
	took := during(streams, time.Duration(seconds)*time.Second, one)
	lasted := time.Since(begin).Seconds()
	at := func(share float64) float64 {
		return float64(took[int(float64(len(took)-1)*share)].Microseconds()) / 1000
	}
	fmt.Printf("%d %.3f %.2f %.2f\n", len(took), lasted, at(0.5), at(0.99))
}
