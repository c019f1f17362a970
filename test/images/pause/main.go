// Command pause is the only program of the image that the end-to-end tests run in pods: it waits, and ends with the
// exit code it was told to. It stands in for a pod's sandbox and for its containers alike.
//
// It ends at SIGTERM, so that a test that stops a container decides when it
// dies and with which code, or by itself --after a time.
package main

import (
	"flag"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	code := flag.Int("exit-code", 0, "exit with this code")
	after := flag.Duration("after", 0, "exit after this time; 0: at SIGTERM")
	name := flag.String("name", "", "call the process so")
	flag.Parse()
	if *name != "" {
		if err := os.WriteFile("/proc/self/comm", []byte(*name), 0); err != nil {
			os.Exit(100)
		}
	}

	// As pid 1 of a container the process gets only the signals it asks for.
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	var timeout <-chan time.Time
	if *after > 0 {
		timeout = time.After(*after)
	}
	select {
	case <-end:
	case <-timeout:
	}
	os.Exit(*code)
}
