// Command demo shows plegd at work without a cluster and without root: a fake
// runtime with 110 pods, a fault, the reason and the countdown to NotReady, and
// the recovery. `make demo` builds plegd and runs it. It ends with exit 1 and
// one clear line when a step does not come, so that CI can run it too.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

const (
	// threshold is the kubelet's 3 min, shortened for show.
	threshold = 20 * time.Second
	// limit ends a demo that hangs somewhere.
	limit = 100 * time.Second
)

func main() {
	// The children die with this thread (Pdeathsig), so it must live as long as
	// the program does.
	runtime.LockOSThread()
	binary := flag.String("plegd", "build/plegd", "the plegd to show")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the demo took longer than %s", limit))
	defer cancel()
	if err := run(ctx, *binary); err != nil {
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
			err = cause
		}
		fmt.Fprintf(os.Stderr, "\ndemo: FAILED: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, binary string) error {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("there is no %s: run make build first", binary)
	}
	dir, err := tempDir()
	if err != nil {
		return err
	}
	d := &demo{binary: binary, dir: dir, began: time.Now()}
	defer d.close()
	if err := os.Mkdir(filepath.Join(dir, "state"), 0o700); err != nil {
		return err
	}
	return d.play(ctx)
}

// tempDir makes a directory whose sockets have a path that fits: 107 bytes is
// all that a unix address holds.
func tempDir() (string, error) {
	dir, err := os.MkdirTemp("", "plegd-demo-")
	if err == nil && len(dir) > 80 {
		_ = os.Remove(dir)
		dir, err = os.MkdirTemp("/tmp", "plegd-demo-")
	}
	return dir, err
}

// play is the whole story.
func (d *demo) play(ctx context.Context) error {
	runtimeSocket, controlSocket := filepath.Join(d.dir, "runtime.sock"), filepath.Join(d.dir, "plegd.sock")
	address, err := freeAddress()
	if err != nil {
		return err
	}
	d.url = "http://" + address

	d.say("A fake container runtime: 110 pods of 2 containers, real CRI over a unix socket.")
	if err := d.start(ctx, "simulate", "--socket", runtimeSocket, "--pods", "110", "--containers", "2"); err != nil {
		return err
	}
	if err := d.waitSocket(ctx, runtimeSocket); err != nil {
		return err
	}
	d.say("plegd, relisting it every second as the kubelet does. The kubelet's threshold is 3 min; here %s.", threshold)
	if err := d.start(ctx, "run",
		"--runtime-endpoint", "unix://"+runtimeSocket,
		"--relist-threshold", threshold.String(),
		"--web.listen-address", address,
		"--control-socket", controlSocket,
		"--state-dir", filepath.Join(d.dir, "state"),
		"--log.format", "console"); err != nil {
		return err
	}
	if _, err := d.waitStatus(ctx, 10*time.Second, "healthy", func(s *status) bool {
		return s.State == "healthy" && s.Facts.Pods != nil && s.Facts.Pods.Running == 110
	}); err != nil {
		return err
	}
	if err := d.showMetrics(ctx); err != nil {
		return err
	}

	d.say("The fault: ListContainers hangs; every other call is answered. Nothing has failed yet, and nothing returns.")
	if err := d.failpoints(ctx, runtimeSocket, "ListContainers=hang"); err != nil {
		return err
	}
	s, err := d.waitStatus(ctx, 10*time.Second, "degraded", func(s *status) bool {
		return s.State == "degraded" && s.Reason == "RuntimeListStall" && s.NotReadyIn != nil
	})
	if err != nil {
		return err
	}
	d.keeps = s.Reason
	first := *s.NotReadyIn
	if s, err = d.waitStatus(ctx, 10*time.Second, "the countdown to go on", func(s *status) bool {
		return s.NotReadyIn != nil && *s.NotReadyIn < first-4
	}); err != nil {
		return err
	}
	if !s.Kubelet.RulesOK || !s.Kubelet.NodeReady {
		return fmt.Errorf("degraded, yet by the model the kubelet's rules hold: %t, the node is Ready: %t", s.Kubelet.RulesOK, s.Kubelet.NodeReady)
	}
	if err := d.showMetrics(ctx); err != nil {
		return err
	}
	d.say("What a person on the node sees: plegd status")
	if err := d.showStatus(ctx, controlSocket, 1); err != nil {
		return err
	}

	d.say("The kubelet's rules still hold. Until:")
	if s, err = d.waitStatus(ctx, threshold+5*time.Second, "unhealthy", func(s *status) bool { return s.State == "unhealthy" }); err != nil {
		return err
	}
	if s.KubeletMessage == "" {
		return errors.New("unhealthy, yet there is no message of the kubelet")
	}
	d.note("the kubelet no longer manages pods; the node is NotReady with its next status update, which brings the message:")
	d.note("%s", s.KubeletMessage)
	if err := d.healthz(ctx, 503); err != nil {
		return err
	}
	if err := d.showMetrics(ctx); err != nil {
		return err
	}

	// A hang that ends right at the threshold flaps by the kubelet's own rules:
	// the late answer counts from the relist's start. Stay clear of it.
	if err := d.pause(ctx, 3*time.Second); err != nil {
		return err
	}

	d.say("The recovery: the hung call returns, and the next relist succeeds.")
	d.keeps = ""
	if err := d.failpoints(ctx, runtimeSocket, "ListContainers=off"); err != nil {
		return err
	}
	if _, err := d.waitStatus(ctx, 10*time.Second, "healthy", func(s *status) bool { return s.State == "healthy" && s.Reason == "" }); err != nil {
		return err
	}
	if err := d.healthz(ctx, 200); err != nil {
		return err
	}
	if err := d.showMetrics(ctx); err != nil {
		return err
	}
	d.say("All that plegd logged meanwhile:")
	d.showLog()
	d.say("Done in %.0f s: healthy, degraded with its reason, unhealthy at the threshold, healthy again.", time.Since(d.began).Seconds())
	return nil
}
