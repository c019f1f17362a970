package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// faultGoal is what plegd is to spend at most during a fault, in milliseconds of CPU a second
// at 110 pods.
const faultGoal = 30

// faults makes faults on a fake runtime, one after the other, and shows what plegd
// spends on its own and what it says.
func faults(ctx context.Context, cfg config) error {
	fmt.Printf("plegd's CPU milliseconds a second during faults, 110 pods, %s each; goal: at most %d\n", cfg.window, faultGoal)
	for _, f := range []struct {
		name  string
		begin func(*node) error
	}{
		{"none", func(*node) error { return nil }},
		{"SIGSTOP", func(n *node) error { return unix.Kill(n.runtime.cmd.Process.Pid, unix.SIGSTOP) }},
		{"no descriptor left", exhaust},
		{"ListContainers hangs", func(n *node) error { return n.runtime.enc.Encode(order{Failpoints: "ListContainers=hang"}) }},
		{"every call hangs", func(n *node) error {
			return n.runtime.enc.Encode(order{Failpoints: "ListContainers=hang;ListPodSandbox=hang;Status=hang;Version=hang"})
		}},
	} {
		used, reason, err := duringFault(ctx, cfg, f.begin)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		fmt.Printf("%-22s %6.2f  %s\n", f.name, used, reason)
		if used > faultGoal {
			fmt.Println("Goal missed.")
		}
	}
	return nil
}

// exhaust leaves the runtime no descriptor, and has connections wait for one.
func exhaust(n *node) error {
	if err := unix.Prlimit(n.runtime.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 8, Max: 8}, nil); err != nil {
		return err
	}
	for range 3 {
		if _, err := net.Dial("unix", n.socket); err != nil {
			return err
		}
	}
	return nil
}

func duringFault(ctx context.Context, cfg config, begin func(*node) error) (perSecond float64, reason string, err error) {
	n, err := newNode(ctx, nodePods, cfg.containers)
	if err != nil {
		return 0, "", err
	}
	defer n.close()
	d, err := startDaemon(ctx, cfg.plegd, n.socket)
	if err != nil {
		return 0, "", err
	}
	defer d.stop()
	if err := wait(ctx, 15*time.Second); err != nil {
		return 0, "", err
	}
	if err := begin(n); err != nil {
		return 0, "", err
	}
	before, start := cpuOf(d.pid()), time.Now()
	if err := wait(ctx, cfg.window); err != nil {
		return 0, "", err
	}
	perSecond = ms(cpuOf(d.pid())-before) / time.Since(start).Seconds()
	reason, err = d.reason(ctx)
	return perSecond, reason, err
}
