//go:build e2e

package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

// noDescriptor is true of a runtime that has no descriptor left until somebody
// connects to it.
var noDescriptor = []string{health.FDsRunningOut}

// matrix are the faults. A list fails within a relist period and is named 3 s
// after the fault at most; what a fresh connection finds after 4 s, what Status
// says after 8 s.
var matrix = []fault{
	{
		name: "socket unlinked", want: health.RuntimeSocketUnlinked, goal: 4 * time.Second,
		inject: func(b *bench) func() {
			kept := b.socket + ".kept"
			b.must(os.Rename(b.socket, kept))
			return func() { b.must(os.Rename(kept, b.socket)) }
		},
	},
	{
		name: "kill -9", restarts: true, want: health.RuntimeNotListening, goal: 3 * time.Second,
		// A starting containerd removes the stale socket before it makes its own.
		onTheWayBack: []string{health.RuntimeSocketMissing, health.RuntimeStarting},
		inject: func(b *bench) func() {
			b.Kill()
			return b.Start
		},
	},
	{
		name: "SIGTERM", on: []string{"containerd", "CRI-O"}, why: "it leaves its socket's file behind", restarts: true, want: health.RuntimeSocketMissing, goal: 3 * time.Second,
		onTheWayBack: []string{health.RuntimeStarting},
		inject: func(b *bench) func() {
			b.Terminate()
			return b.Start
		},
	},
	{
		name: "SIGTERM, the socket's file stays", on: criDockerd, why: "it removes its socket", restarts: true, want: health.RuntimeNotListening, goal: 3 * time.Second,
		onTheWayBack: []string{health.RuntimeSocketMissing, health.RuntimeStarting},
		inject: func(b *bench) func() {
			b.Terminate()
			return b.Start
		},
	},
	{
		name: "SIGSTOP", want: health.RuntimeFrozen, goal: 3 * time.Second,
		inject: func(b *bench) func() {
			b.Freeze()
			return b.Thaw
		},
	},
	{
		name: "cgroup frozen", want: health.RuntimeFrozen, goal: 3 * time.Second,
		prepare: func(b *bench) { b.group = lab.NewControlGroup(b.t, "freezer", b.Pid()) },
		inject: func(b *bench) func() {
			b.group.Freeze(true)
			return func() { b.group.Freeze(false) }
		},
	},
	{
		name: "400 idle connections, 256 fds", want: health.AcceptFDExhausted, goal: 4 * time.Second,
		options:  lab.ContainerdOptions{OpenFiles: 256},
		onTheWay: noDescriptor,
		inject: func(b *bench) func() {
			open := b.connect(400)
			return func() { closeAll(open) }
		},
	},
	{
		name: "prlimit to 8 fds", want: health.AcceptFDExhausted, goal: 4 * time.Second,
		onTheWay: noDescriptor,
		inject:   func(b *bench) func() { return b.LimitFiles(8) },
	},
	{
		name: "prlimit to 8 fds, accept queue filled", want: health.AcceptFDExhausted, goal: 4 * time.Second,
		also:     []string{health.AcceptStalled},
		onTheWay: append([]string{health.AcceptStalled}, noDescriptor...), // whichever is found first
		inject: func(b *bench) func() {
			undo := b.LimitFiles(8)
			open := b.connect(10000)
			return func() {
				closeAll(open)
				undo()
			}
		},
	},
	{
		name: "nobody accepts, accept queue filled", want: health.AcceptStalled, goal: 4 * time.Second,
		simulate: []string{"--pods=5"},
		inject: func(b *bench) func() {
			b.failpoints("socket=noaccept")
			open := b.connect(10000)
			return func() {
				closeAll(open)
				b.failpoints("")
			}
		},
	},
	{
		name: "chmod 000", want: health.RuntimeSocketPermissionDenied, goal: 4 * time.Second,
		plegd: lab.PlegdOptions{DropCapabilities: []string{"dac_override", "dac_read_search"}},
		inject: func(b *bench) func() {
			info, err := os.Stat(b.socket)
			b.must(err)
			b.must(os.Chmod(b.socket, 0))
			return func() { b.must(os.Chmod(b.socket, info.Mode().Perm())) }
		},
	},
	{
		name: "CPU quota of 2 ms a second", want: health.RuntimeThrottled, goal: 3 * time.Second, limit: 10 * time.Second,
		prepare: func(b *bench) {
			lab.Two(300, func(int) { b.pods[0].CreateHeavyContainer(1000) })
			b.group = lab.NewControlGroup(b.t, "cpu", b.Pid())
		},
		onTheWayBack: []string{health.RelistSlow},
		hold:         10 * time.Second,
		inject: func(b *bench) func() {
			b.group.Quota(time.Millisecond)
			return func() { b.group.Quota(0) }
		},
	},
	{
		name: "no CNI configuration", on: []string{"containerd"}, why: "its NetworkReady stays true", want: health.NetworkNotReady, goal: 8 * time.Second, phase: 5 * time.Second,
		inject: func(b *bench) func() {
			b.must(os.Remove(b.CNIConfig))
			return b.WriteCNIConfig
		},
	},
	{
		name: "list above the server's limit", on: []string{"containerd", "cri-dockerd"}, why: "its limit is 80 MiB", want: health.ListResponseTooLarge, goal: 3 * time.Second,
		onTheWay: []string{health.TooManyContainers},
		prepare:  manyHeavy,
		inject:   oneTooHeavy,
	},
	{
		name: "list above the client's limit", on: []string{"containerd", "CRI-O"}, why: "its own limit is the same, and fixed", want: health.ListResponseTooLarge, goal: 3 * time.Second,
		onTheWay:  []string{health.TooManyContainers},
		configure: func(b *bench) { b.LiftListLimit() },
		prepare:   manyHeavy,
		inject:    oneTooHeavy,
	},
	{
		name: "start held up by 3 stopped shims", on: []string{"containerd"}, why: "its start waits for no shim", want: health.RuntimeStarting, goal: 4 * time.Second, fresh: true,
		onTheWay: []string{health.RuntimeNotListening, health.RuntimeSocketMissing, health.ShimStuck},
		inject: func(b *bench) func() {
			cont := b.stopShims(3)
			b.Kill()
			b.injected = time.Now()
			b.Launch()
			return func() {
				cont()
				b.AwaitAnswer()
			}
		},
	},
	{
		name: "server is not initialized yet", want: health.RuntimeStarting, goal: 3 * time.Second,
		simulate: []string{"--pods=110"},
		inject: func(b *bench) func() {
			b.failpoints("*=error(Unknown: server is not initialized yet)")
			return func() { b.failpoints("") }
		},
	},
	{
		name: "restarted again and again", want: health.RuntimeRestarting, goal: 3 * time.Second,
		fresh: true, restarts: true, // fresh: in lanes one run waits beside the others
		onTheWay: []string{health.RuntimeNotListening, health.RuntimeSocketMissing, health.RuntimeStarting},
		back:     62 * time.Second, backLimit: 65 * time.Second, // it ends when it has stayed for a minute
		inject: func(b *bench) func() {
			for range 3 {
				time.Sleep(2 * time.Second)
				b.injected = time.Now()
				b.Kill()
				b.Start()
			}
			return func() {}
		},
	},
	{
		name: "shim stopped", want: health.ShimStuck, goal: 5 * time.Second,
		inject: func(b *bench) func() { return b.stopShims(1) },
	},
	{
		name: "CNI plugin hangs", want: health.RuntimeHelperStuck, goal: 33 * time.Second, // it may take 30 s
		limit:   40 * time.Second,
		prepare: func(b *bench) { b.installPlugin() },
		inject: func(b *bench) func() {
			flag := filepath.Join(filepath.Dir(b.CNIConfig), "hang")
			b.must(os.WriteFile(flag, nil, 0o644))
			done := make(chan struct{})
			go func() {
				defer close(done)
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				_ = b.cri.RunPodInNetwork(ctx) // the plugin makes no network
			}()
			return func() {
				b.must(os.Remove(flag))
				<-done
			}
		},
	},
	{
		// Whatever its name; to end its parent would leave it with the pipe.
		name: "CNI plugin waits for its child, another program", want: health.RuntimeHelperStuck, goal: 33 * time.Second,
		limit:   40 * time.Second,
		prepare: func(b *bench) { b.installPlugin() },
		inject: func(b *bench) func() {
			waiter := filepath.Join(filepath.Dir(b.CNIConfig), "waiter")
			sleep, err := exec.LookPath("sleep")
			b.must(err)
			program, err := os.ReadFile(sleep)
			b.must(err)
			b.must(os.WriteFile(waiter, program, 0o755))
			plugin := filepath.Join(filepath.Dir(b.CNIConfig), "slow-cni")
			script := strings.Replace(lab.FakePlugin, "#!/bin/sh\n", "#!/bin/sh\nif [ \"$CNI_COMMAND\" = ADD ]; then '"+waiter+"' 120; fi\n", 1)
			b.must(os.WriteFile(plugin, []byte(script), 0o755))
			done := inBackground(func(ctx context.Context) { _ = b.cri.RunPodInNetwork(ctx) })
			return func() {
				b.must(os.WriteFile(plugin, []byte(lab.FakePlugin), 0o755))
				for _, pid := range runningFrom(waiter) {
					b.must(unix.Kill(pid, unix.SIGKILL))
				}
				<-done
			}
		},
		explained: func(b *bench) string {
			waiter := filepath.Join(filepath.Dir(b.CNIConfig), "waiter")
			return b.awaitExplained(func(e explained) bool {
				last := e.Culprit.Kind == health.KindHelper && slices.Contains(runningFrom(waiter), e.Culprit.PID)
				return last && strings.Contains(e.Next, fmt.Sprintf("`kill %d`", e.Culprit.PID))
			})
		},
	},
	{
		name: "inspections hang, pods change", want: health.PodInspectionStall, goal: 5 * time.Second,
		simulate: []string{"--pods=20", "--churn=0.2"},
		// So long has the relist taken that has just ended.
		onTheWayBack: []string{health.RelistSlow},
		inject: func(b *bench) func() {
			b.failpoints("PodSandboxStatus=hang")
			return func() { b.failpoints("") }
		},
	},
	{
		name: "400 idle connections, and no CNI configuration", on: []string{"containerd"}, why: "its NetworkReady stays true", want: health.AcceptFDExhausted, goal: 4 * time.Second,
		also:     []string{health.NetworkNotReady},
		onTheWay: append([]string{health.NetworkNotReady}, noDescriptor...),
		// After the descriptors came back; NetworkReady is asked for every second.
		onTheWayBack: []string{health.NetworkNotReady},
		options:      lab.ContainerdOptions{OpenFiles: 256},
		// In this order: from 1.7 on Status fails without a descriptor, and then
		// nobody can learn of the network.
		inject: func(b *bench) func() {
			b.must(os.Remove(b.CNIConfig))
			lab.Eventually(b.t, 15*time.Second, "plegd knows of the network", func() error {
				if s, err := b.plegd.Status(); err != nil || s.Reason != health.NetworkNotReady {
					return fmt.Errorf("its reason is %q: %w", s.Reason, err)
				}
				return nil
			})
			b.injected = time.Now()
			open := b.connect(400)
			return func() {
				closeAll(open)
				time.Sleep(1500 * time.Millisecond) // it takes a descriptor to read one
				b.WriteCNIConfig()
			}
		},
	},
	{
		name: "SIGSTOP, and a shim stopped", want: health.RuntimeFrozen, goal: 3 * time.Second,
		also: []string{health.ShimStuck},
		// The shim may be seen before the runtime, and to run up to 2 s after it does.
		onTheWay: []string{health.ShimStuck}, onTheWayBack: []string{health.ShimStuck},
		inject: func(b *bench) func() {
			cont := b.stopShims(1)
			b.Freeze()
			return func() {
				cont()
				b.Thaw()
			}
		},
	},
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// stopShims stops the shims of some pods and returns what continues them.
func (b *bench) stopShims(n int) (cont func()) {
	b.t.Helper()
	var pids []int
	for _, p := range b.pods[:n] {
		pids = append(pids, b.Shim(p))
	}
	for _, pid := range pids {
		b.must(syscall.Kill(pid, syscall.SIGSTOP))
	}
	return func() {
		for _, pid := range pids {
			b.must(syscall.Kill(pid, syscall.SIGCONT))
		}
	}
}

// manyHeavy makes containers whose list takes 12 MB, and oneTooHeavy one that
// takes the list beyond 16 MiB.
func manyHeavy(b *bench) {
	lab.Two(120, func(int) { b.pods[0].CreateHeavyContainer(100_000) })
}

func oneTooHeavy(b *bench) func() {
	c := b.pods[1].CreateHeavyContainer(6_000_000)
	b.injected = time.Now() // CRI-O takes seconds to create it
	return c.Remove
}

// installPlugin gives containerd a network plugin that hangs when it is asked
// for a network while the file hang is there, and never makes one.
func (b *bench) installPlugin() {
	b.t.Helper()
	dir := filepath.Dir(b.CNIConfig)
	for name, text := range map[string]string{
		"loopback": lab.FakePlugin,
		"slow-cni": strings.Replace(lab.FakePlugin, "#!/bin/sh\n", "#!/bin/sh\nif [ \"$CNI_COMMAND\" = ADD ]; then while [ -e '"+dir+"/hang' ]; do sleep 0.2; done; fi\n", 1),
	} {
		b.must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
	}
	draft := b.CNIConfig + ".draft"
	b.must(os.WriteFile(draft, []byte(`{"cniVersion": "0.3.1", "name": "lab", "plugins": [{"type": "slow-cni"}]}`), 0o644))
	b.must(os.Rename(draft, b.CNIConfig))
	time.Sleep(500 * time.Millisecond) // until it is read
}

// runningFrom returns the processes that run a program.
func runningFrom(program string) (pids []int) {
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == program {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// awaitCulprit waits until plegd names a culprit that is right; else it returns what plegd
// says of the cause.
func (b *bench) awaitExplained(right func(explained) bool) (wrong string) {
	var e explained
	for began := time.Now(); time.Since(began) < 45*time.Second; time.Sleep(100 * time.Millisecond) {
		if e = explain(b.t, b.plegd); e.Culprit != nil && right(e) {
			return ""
		}
	}
	return e.String()
}
