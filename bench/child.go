package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	plegd "github.com/plegd/plegd/internal/daemon"
)

// childArg as the first argument makes this program a runtime or a subject.
const childArg = "child"

// order is one line to a subject; each is answered by one line.
type order struct {
	Relists int
	Period  time.Duration
	// Collect asks for the heap in use after a collection.
	Collect bool
	// Failpoints are for the runtime, Window is how long the daemon is watched.
	Failpoints string
	Window     time.Duration
}

// reply is one line from a child; the first, empty one says that it is ready.
type reply struct {
	Round round
	Err   string `json:",omitempty"`
}

// child is the other side of startChild.
func child(args []string) error {
	name := args[0]
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	socket := flags.String("socket", "", "")
	pods := flags.Int("pods", 0, "")
	containers := flags.Int("containers", 0, "")
	churn := flags.Float64("churn", 0, "")
	profile := flags.String("cpuprofile", "", "")
	address := flags.String("address", "", "")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	out, in := json.NewEncoder(os.Stdout), json.NewDecoder(os.Stdin)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	handle, end, err := start(ctx, name, *socket, *address, *pods, *containers, *churn)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer end()
	if *profile != "" {
		stop, err := profileInto(*profile)
		if err != nil {
			return err
		}
		defer stop()
	}
	if err := out.Encode(reply{}); err != nil {
		return err
	}
	for {
		var o order
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var answer reply
		if answer.Round, err = handle(o); err != nil {
			answer.Err = err.Error()
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
}

// start starts what a child is; handle obeys an order.
func start(ctx context.Context, name, socket, address string, pods, containers int, churn float64) (handle func(order) (round, error), end func(), err error) {
	handle, end = func(order) (round, error) { return round{}, nil }, func() {}
	if runsAsPlegd(name) {
		plegd.LimitMemory()
	}
	switch name {
	case runtimeName:
		rt, err := startRuntime(socket, pods, containers, churn)
		if err != nil {
			return nil, nil, err
		}
		return func(o order) (round, error) { return round{}, rt.SetFailpoints(o.Failpoints) }, rt.Stop, nil
	case evidenceName:
		return handle, end, runEvidence(ctx, socket)
	case probesName:
		return handle, end, runProbes(ctx, socket)
	case daemonName:
		d, err := runDaemon(ctx, socket, address)
		return func(o order) (round, error) { return round{Latencies: d.verdicts(o.Window)}, nil }, end, err
	}
	s, err := newSubject(name, socket)
	if err != nil {
		return nil, nil, err
	}
	// Warm: the first relist of plegd inspects every pod, the others learn how
	// large a map to make.
	for range 3 {
		if err := s.relist(ctx); err != nil {
			return nil, nil, err
		}
	}
	return func(o order) (round, error) {
		r, err := measure(ctx, s, o.Relists, o.Period)
		if o.Collect {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			r.Heap = m.HeapAlloc
		}
		return r, err
	}, s.close, nil
}

// process is a child of the bench.
type process struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	enc  *json.Encoder
	dec  *json.Decoder
}

// startRuntimeChild starts the runtime that all subjects of a run talk to.
func startRuntimeChild(ctx context.Context, socket string, pods, containers int, churn float64) (*process, error) {
	return startChild(ctx, runtimeName, "-socket", socket, "-pods", fmt.Sprint(pods), "-containers", fmt.Sprint(containers), "-churn", fmt.Sprint(churn))
}

// startChild starts this program as a runtime or a subject and waits until it is
// ready.
func startChild(ctx context.Context, name string, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{name: name, cmd: exec.CommandContext(ctx, self, append([]string{childArg, name}, args...)...)}
	p.cmd.Env = append(os.Environ(), childEnv+"=1")
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.enc, p.dec = json.NewEncoder(p.in), json.NewDecoder(bufio.NewReader(out))
	start := p.cmd.Start
	if runsAsPlegd(name) {
		start = func() error { return startAsUnit(p.cmd) }
	}
	if err := start(); err != nil {
		return nil, err
	}
	if _, err := p.read(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// childEnv marks a test binary as a child: see TestMain.
const childEnv = "PLEGD_BENCH_CHILD"

func (p *process) read() (reply, error) {
	var r reply
	if err := p.dec.Decode(&r); err != nil {
		return r, fmt.Errorf("%s ended: %w", p.name, err)
	}
	if r.Err != "" {
		return r, fmt.Errorf("%s: %s", p.name, r.Err)
	}
	return r, nil
}

// round lets a subject make its relists.
func (p *process) round(o order) (round, error) {
	if err := p.enc.Encode(o); err != nil {
		return round{}, err
	}
	r, err := p.read()
	return r.Round, err
}

// close ends the child: it goes when its input ends.
func (p *process) close() {
	_ = p.in.Close()
	done := make(chan struct{})
	go func() { _ = p.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Second):
		_ = p.cmd.Process.Kill()
		<-done
	}
}
