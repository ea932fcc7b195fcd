//go:build tools

package main

import _ "github.com/nats-io/nats-server/v2" // what is measured; built by benchmarks/nats_jetstream.py
