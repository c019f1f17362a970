//go:build e2e

package soak

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

// slow are the reasons that are true of a node whose cores are all busy: lists
// take long, and so does the modelled kubelet's round over many pods.
var slow = []string{health.NodePressure, health.RelistSlow}

// action is something that a node's owner does.
type action struct {
	name string
	// allowed are the reasons that plegd may name from the action's start to 3 s
	// after its end.
	allowed []string
	// at is the part of the whole time after which it is made, once; 0: it is made
	// again and again.
	at float64
	do func(*node)
}

// actions are those of an ordinary day.
var actions = []action{
	{name: "pods come and go", do: func(n *node) {
		for _, p := range n.cri.RunPods(3, 2) {
			p.Stop()
			p.Remove()
		}
	}},
	{name: "a container crashes in a loop", do: func(n *node) {
		for range 5 {
			c := n.pods[0].RunContainer("crasher", "--exit-code=1", "--after=500ms")
			lab.Eventually(n.t, 20*time.Second, "the container has exited", func() error {
				if c.FinishedAt().IsZero() {
					return errors.New("it runs")
				}
				return nil
			})
			c.Remove()
		}
	}},
	{name: "an image is imported", do: func(n *node) { n.containerd.ImportImage() }},
	{name: "a container is restarted in every pod", do: func(n *node) {
		for _, p := range n.pods {
			c := p.RunContainer("brief")
			c.Stop()
			c.Remove()
		}
	}},
	// A hundred sandboxes and containers in one go keep every core busy, and are
	// more changes at once than a kubelet inspects in 5 s.
	{name: "100 pods at once", at: .2, allowed: slow, do: func(n *node) {
		n.cri.AtOnce(10, 100, func(int) {
			p := n.cri.RunPod()
			p.RunContainer("app")
			p.Stop()
			p.Remove()
		})
		n.awaitCalm()
	}},
	// Gone, not listening yet, recovering: each for a moment.
	{name: "containerd is restarted", at: .45, allowed: []string{health.RuntimeSocketMissing, health.RuntimeNotListening, health.RuntimeStarting}, do: func(n *node) {
		n.containerd.Terminate()
		n.containerd.Start()
	}},
	{name: "the cores are busy", at: .65, allowed: slow, do: func(n *node) {
		n.burn(20 * time.Second)
		n.awaitCalm()
	}},
}

// burn keeps every core busy with two processes each.
func (n *node) burn(d time.Duration) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), d)
	defer cancel()
	var all sync.WaitGroup
	for range 2 * runtime.NumCPU() {
		all.Go(func() {
			cmd := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			_ = cmd.Run() // ended by ctx
		})
	}
	all.Wait()
}

// awaitCalm returns when the machine itself does not say any more that it is
// short of CPU, a minute later at most: its account is of the last 10 s.
func (n *node) awaitCalm() {
	for range 120 {
		if lab.CPUPressure() < lab.Pressed {
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
}
