// Command natsload loads a TrioMQ broker or a NATS server with sends or fetches over raw connections, as light for itself
// as it can be, and prints the messages of the measured seconds.
//
//	natsload rocketmq send|fetch ADDRESS    one queue of topic Bench for each connection
//	natsload nats setup|send|fetch ADDRESS  one subject Bench.N of stream Bench for each connection
package main

import (
	"bufio"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var (
	connections = flag.Int("connections", 4, "how many connections")
	window      = flag.Int("window", 64, "requests in flight on each")
	size        = flag.Int("size", 1024, "bytes of a body")
	batch       = flag.Int("batch", 32, "messages of a fetch")
	stored      = flag.Int("stored", 10000, "messages that each queue or subject holds for fetches")
	warm        = flag.Duration("warm", time.Second, "before the measured time")
	lasts       = flag.Duration("lasts", 5*time.Second, "the measured time")
	count       = flag.Int("count", 0, "end after so many sends of each connection")
)

// A peer is one connection: `request` writes the next one, `response` reads one and returns its messages.
type peer interface {
	request(out *bufio.Writer, number int) error
	response(in *bufio.Reader) (messages int, err error)
}

func main() {
	log.SetFlags(0)
	flag.Parse()
	if flag.NArg() != 3 {
		flag.Usage()
		os.Exit(2)
	}
	system, what, address := flag.Arg(0), flag.Arg(1), flag.Arg(2)
	body := strings.Repeat("x", *size)
	var open func(number int, in *bufio.Reader, out *bufio.Writer) (peer, error)
	switch system + " " + what {
	case "rocketmq send":
		open = func(n int, _ *bufio.Reader, _ *bufio.Writer) (peer, error) { return newRocketSender(n, body), nil }
	case "rocketmq fetch":
		open = func(n int, _ *bufio.Reader, _ *bufio.Writer) (peer, error) { return &rocketFetcher{queue: n}, nil }
	case "nats setup":
		if err := makeStream(address); err != nil {
			log.Fatal(err)
		}
		return
	case "nats send":
		open = func(n int, in *bufio.Reader, out *bufio.Writer) (peer, error) { return newNatsSender(n, body, in, out) }
	case "nats fetch":
		open = newNatsFetcher
	default:
		flag.Usage()
		os.Exit(2)
	}
	if err := run(address, open); err != nil {
		log.Fatal(err)
	}
}

// run loads the address from all connections and prints what came in the measured time.
func run(address string, open func(int, *bufio.Reader, *bufio.Writer) (peer, error)) error {
	var done atomic.Int64
	var ended atomic.Bool
	failures := make(chan error, *connections)
	var wait sync.WaitGroup
	for n := range *connections {
		socket, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer socket.Close()
		in, out := bufio.NewReaderSize(socket, 1<<18), bufio.NewWriterSize(socket, 1<<18)
		each, err := open(n, in, out)
		if err != nil {
			return err
		}
		wait.Add(1)
		go func() {
			defer wait.Done()
			if err := drive(each, in, out, &done, &ended); err != nil {
				failures <- err
			}
		}()
	}
	if *count > 0 {
		wait.Wait()
	} else {
		time.Sleep(*warm)
		fmt.Println("begin")
		began, before := time.Now(), done.Load()
		time.Sleep(*lasts)
		messages, seconds := done.Load()-before, time.Since(began).Seconds()
		fmt.Printf("%d %.6f\n", messages, seconds)
		ended.Store(true)
		wait.Wait()
	}
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}

// drive keeps `window` requests in flight until the end.
func drive(each peer, in *bufio.Reader, out *bufio.Writer, done *atomic.Int64, ended *atomic.Bool) error {
	sent, answered := 0, 0
	for !ended.Load() && (*count == 0 || answered < *count) {
		for sent-answered < *window && (*count == 0 || sent < *count) {
			if err := each.request(out, sent); err != nil {
				return err
			}
			sent++
		}
		if err := out.Flush(); err != nil {
			return err
		}
		// All responses that are here already, before the next requests leave together.
		for first := true; sent > answered && (first || in.Buffered() > 0); first = false {
			messages, err := each.response(in)
			if err != nil {
				return err
			}
			answered++
			done.Add(int64(messages))
		}
	}
	return nil
}
