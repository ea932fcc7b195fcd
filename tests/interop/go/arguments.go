package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// arguments are the options of one command, "--name value".
type arguments map[string]string

func parse(words []string) (arguments, error) {
	a := arguments{}
	for i := 0; i < len(words); i += 2 {
		name, found := strings.CutPrefix(words[i], "--")
		if !found || i+1 == len(words) {
			return nil, fmt.Errorf("expected --name value, found %s", words[i])
		}
		a[name] = words[i+1]
	}
	return a, nil
}

func (a arguments) text(name, fallback string) string {
	if value, found := a[name]; found {
		return value
	}
	return fallback
}

func (a arguments) number(name string, fallback int) int {
	if number, err := strconv.Atoi(a[name]); err == nil {
		return number
	}
	return fallback
}

func (a arguments) list(name string) []string {
	if a[name] == "" {
		return nil
	}
	return strings.Split(a[name], ",")
}

// lines are those of --file, each with its line end: together they are the file again.
func (a arguments) lines() ([][]byte, error) {
	all, err := os.ReadFile(a["file"])
	if err != nil {
		return nil, err
	}
	lines := bytes.SplitAfter(all, []byte("\n"))
	if len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	return lines, nil
}

// stop says when a command has to end.
type stop struct {
	once sync.Once
	told chan struct{}
}

func newStop() *stop { return &stop{told: make(chan struct{})} }

func (s *stop) set() { s.once.Do(func() { close(s.told) }) }

func (s *stop) wait() { <-s.told }

// waitFor waits at most this long and says whether the command has to end.
func (s *stop) waitFor(limit time.Duration) bool {
	if limit <= 0 {
		select {
		case <-s.told:
			return true
		default:
			return false
		}
	}
	select {
	case <-s.told:
		return true
	case <-time.After(limit):
		return false
	}
}
