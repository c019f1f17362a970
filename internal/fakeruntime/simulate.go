package fakeruntime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"path/filepath"
	"time"
)

// The most that Simulate makes.
const (
	maxPods       = 100_000
	maxContainers = 1_000_000 // in all
)

// SimulateOptions are those of `plegd simulate`, named as its flags are.
type SimulateOptions struct {
	// Socket is the path to serve at.
	Socket string
	// Pods is the number of pods, Containers how many each of them has.
	Pods, Containers int
	// Churn is the fraction of the pods, 0 to 1, in which a container is
	// restarted each second; see Model.Churn.
	Churn float64
	// Failpoints are those to begin with; see ParseFailpoints.
	Failpoints string
}

// Validate checks the values. The error is one line that names the flag, the value and
// the allowed values.
func (o *SimulateOptions) Validate() error {
	switch {
	case o.Socket == "":
		return errors.New(`--socket "": want the path of the socket to serve at`)
	case o.Pods < 0 || o.Pods > maxPods:
		return fmt.Errorf("--pods %d: want 0 to %d", o.Pods, maxPods)
	case o.Containers < 0 || o.Containers > maxContainers:
		return fmt.Errorf("--containers %d: want 0 to %d", o.Containers, maxContainers)
	case o.Pods*o.Containers > maxContainers:
		return fmt.Errorf("--pods %d with --containers %d: want at most %d containers in all",
			o.Pods, o.Containers, maxContainers)
	case math.IsNaN(o.Churn) || o.Churn < 0 || o.Churn > 1:
		return fmt.Errorf("--churn %v: want a fraction of the pods a second, 0 to 1", o.Churn)
	}
	if _, err := ParseFailpoints(o.Failpoints); err != nil {
		return fmt.Errorf("--failpoints: %w", err)
	}
	abs, err := filepath.Abs(o.Socket)
	if err != nil {
		return fmt.Errorf("--socket %s: %w", o.Socket, err)
	}
	o.Socket = abs // gRPC targets need an absolute path
	return nil
}

// Simulate serves a fake runtime on a unix socket, and its failpoints on ControlSocket,
// until the context ends; then it removes both and returns nil. It refuses a socket
// with a listener and replaces one that a dead process left behind. It logs the served
// paths and every change of the failpoints to logTo, one line each.
func Simulate(ctx context.Context, opts SimulateOptions, logTo io.Writer) error {
	if err := opts.Validate(); err != nil {
		return err
	}
	say := log.New(logTo, "", 0)
	rt := New(Options{Seed: uint64(time.Now().UnixNano())})
	if err := rt.SetFailpoints(opts.Failpoints); err != nil {
		return fmt.Errorf("--failpoints: %w", err)
	}
	rt.FillPods(opts.Pods, opts.Containers)

	// The control socket comes first: who sees the runtime's may use it.
	control, err := listenUnix(ControlSocket(opts.Socket))
	if err != nil {
		return fmt.Errorf("--socket %s: %w", opts.Socket, err)
	}
	srv := &http.Server{
		Handler:           controlHandler(rt, say),
		ReadHeaderTimeout: 5 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		// It ends with Close below; there is no other way to fail that matters.
		_ = srv.Serve(control)
	}()
	defer func() {
		_ = srv.Close()
		<-served
	}()

	if err := rt.Listen(opts.Socket); err != nil {
		return fmt.Errorf("--socket %s: %w", opts.Socket, err)
	}
	defer rt.Stop()
	say.Printf("serving runtime.v1 at unix://%s: %d pods with %d containers each; failpoints: %s",
		opts.Socket, opts.Pods, opts.Containers, orNone(rt.Failpoints()))
	churn(ctx, rt, opts.Churn)
	say.Printf("stopped")
	return nil
}

// churn changes pods each second until the context ends.
func churn(ctx context.Context, rt *Runtime, fraction float64) {
	tick := time.Tick(time.Second)
	for {
		select {
		case <-tick:
			rt.Churn(fraction)
		case <-ctx.Done():
			return
		}
	}
}

func orNone(f Failpoints) string {
	if len(f) == 0 {
		return "none"
	}
	return f.String()
}
