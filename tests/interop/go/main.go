// The Go driver of the interoperability tests: runs real RocketMQ clients and prints one JSON event a line.
//
//	driver COMMAND --name value ...   runs one command; the end of stdin stops it
//	driver serve                      reads commands from stdin, words separated by tabs:
//	                                  "ID COMMAND --name value ..." starts one (several run side by side),
//	                                  "ID stop" ends it, the end of stdin ends all
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type command func(arguments, events, *stop) error

var commands = map[string]command{
	"send-lines":  sendLines,
	"receive":     receive,
	"transaction": transaction,
	"request":     request,
	"reply":       reply,
}

// running holds the stop of each live command.
type running struct {
	sync.Mutex
	stops map[string]*stop
}

func (r *running) start(id string, words []string, ended func()) {
	s := newStop()
	r.Lock()
	r.stops[id] = s
	r.Unlock()
	go func() {
		e := events{id}
		if err := run(words, e, s); err != nil {
			fmt.Fprintln(os.Stderr, err)
			e.emit("failed", fields{"error": err.Error()})
		} else {
			e.emit("done", nil)
		}
		r.Lock()
		delete(r.stops, id)
		r.Unlock()
		ended()
	}()
}

func (r *running) stop(id string) {
	r.Lock()
	defer r.Unlock()
	if s := r.stops[id]; s != nil {
		s.set()
	}
}

func run(words []string, e events, s *stop) error {
	c := commands[words[0]]
	if c == nil {
		return fmt.Errorf("no command %s", words[0])
	}
	a, err := parse(words[1:])
	if err != nil {
		return err
	}
	return c(a, e, s)
}

func main() {
	rlog.SetLogger(quiet{})
	r := &running{stops: map[string]*stop{}}
	if len(os.Args) == 2 && os.Args[1] == "serve" {
		events{""}.emit("ready", nil)
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			words := strings.Split(lines.Text(), "\t")
			if len(words) == 2 && words[1] == "stop" {
				r.stop(words[0])
			} else {
				r.start(words[0], words[1:], func() {})
			}
		}
		return
	}
	ended := make(chan struct{})
	r.start("0", os.Args[1:], func() { close(ended) })
	go func() {
		io.Copy(io.Discard, os.Stdin)
		r.stop("0")
	}()
	<-ended
}

// quiet sends the client's warnings to stderr and drops the rest.
type quiet struct{}

func (quiet) Debug(string, map[string]interface{})          {}
func (quiet) Info(string, map[string]interface{})           {}
func (quiet) Warning(text string, f map[string]interface{}) { fmt.Fprintln(os.Stderr, text, f) }
func (quiet) Error(text string, f map[string]interface{})   { fmt.Fprintln(os.Stderr, text, f) }
func (quiet) Fatal(text string, f map[string]interface{})   { fmt.Fprintln(os.Stderr, text, f) }
func (quiet) Level(string)                                  {}
func (quiet) OutputPath(string) error                       { return nil }
