//go:build e2e

package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

const (
	// sweptWithin is how soon after the symptom a culprit must be named that a sweep
	// over the containers finds, atOnce where there is none.
	sweptWithin = 5 * time.Second
	atOnce      = 2 * time.Second
)

var (
	onContainerd = []string{"containerd"}
	// onContainerd1 is for what containerd 2 lets end after 2 s, and for a process in
	// the place of its shim.
	onContainerd1 = []string{"containerd 1."}
	onContainerd2 = []string{"containerd 2."}
	// yetToBeAnswered is what is true in the moment in which a shim or its runc is well
	// again and the list has yet to be answered.
	yetToBeAnswered = []string{health.RuntimeListStall, health.RelistSlow}
)

// frozenWait is where a call with a path waits for a frozen file system.
var frozenWait = health.Link{Kind: health.KindKernel, Name: "percpu_rwsem_wait", State: health.LinkBlocked}

// bookCases are the incidents of docs/results/casebook.md, as far as one runtime and plegd
// make them.
var bookCases = []bookCase{
	{
		row: 1, source: "[containerd 9770](https://github.com/containerd/containerd/issues/9770)", made: "a stopped shim, and UpdateContainerResources on its container",
		fault: fault{
			want: health.ShimStuck, goal: sweptWithin, limit: 20 * time.Second, back: 20 * time.Second, backLimit: 20 * time.Second, on: onContainerd1,
			prepare:      func(b *bench) { b.victim = b.pods[0].RunContainer("victim") },
			onTheWay:     []string{health.RuntimeListStall},
			onTheWayBack: yetToBeAnswered,
			inject: func(b *bench) func() {
				cont := b.stopShims(1)
				end := b.holdList()
				return func() {
					cont()
					end()
				}
			},
		},
		symptom: health.RuntimeListStall, within: sweptWithin, culprit: stoppedShim, first: continueShim,
	},
	{
		row: 1, form: "b", source: "[containerd 9770](https://github.com/containerd/containerd/issues/9770)", made: "the file system of runc's state frozen (fsfreeze), and UpdateContainerResources: the shim's runc is in D",
		fault: fault{
			want: health.RuntimeHelperStuck, goal: sweptWithin, limit: 20 * time.Second, back: 20 * time.Second, backLimit: 20 * time.Second, on: onContainerd,
			configure:    func(b *bench) { b.disk = b.RuncStateOnDisk() },
			prepare:      func(b *bench) { b.victim = b.pods[0].RunContainer("victim") },
			onTheWay:     []string{health.RuntimeListStall},
			onTheWayBack: yetToBeAnswered,
			inject: func(b *bench) func() {
				thaw := b.disk.Freeze()
				end := b.holdList()
				return func() {
					thaw()
					end()
				}
			},
		},
		symptom: health.RuntimeListStall, within: sweptWithin,
		culprit: func(*bench) health.Link {
			return frozenWait // the path lies in runc's memory, which is not read
		},
		first: func(*bench) string { return "`fsfreeze -u " + lab.RuncState + "`" },
	},
	{
		// A shim that was stopped before lets go after 2 s there.
		row: 1, form: "c", source: "[containerd 9770](https://github.com/containerd/containerd/issues/9770)", made: "a shim that is stopped within UpdateContainerResources",
		fault: fault{
			want: health.ShimStuck, goal: sweptWithin, limit: 20 * time.Second, back: 20 * time.Second, backLimit: 20 * time.Second, on: onContainerd2,
			options:      lab.ContainerdOptions{RuncHangsOn: "update"},
			prepare:      func(b *bench) { b.victim = b.pods[0].RunContainer("victim") },
			onTheWay:     []string{health.RuntimeListStall},
			onTheWayBack: yetToBeAnswered,
			inject: func(b *bench) func() {
				b.must(os.WriteFile(b.RuncFlag(), nil, 0o644))
				end := b.holdList()
				cont := b.stopShims(1)
				b.must(os.Remove(b.RuncFlag()))
				return func() {
					cont()
					end()
				}
			},
		},
		symptom: health.RuntimeListStall, within: sweptWithin, culprit: stoppedShim, first: continueShim,
	},
	{
		row: 2, source: "[containerd 3529](https://github.com/containerd/containerd/pull/3529), [5274](https://github.com/containerd/containerd/issues/5274)", made: "a process in the shim's place that reads nothing, and UpdateContainerResources",
		fault: fault{
			want: health.ShimStuck, goal: sweptWithin, limit: 20 * time.Second, back: 20 * time.Second, backLimit: 20 * time.Second, on: onContainerd1,
			options:      lab.ContainerdOptions{OwnShim: true},
			prepare:      func(b *bench) { b.victim = b.pods[0].RunContainer("victim") },
			onTheWay:     []string{health.RuntimeListStall},
			onTheWayBack: yetToBeAnswered,
			inject: func(b *bench) func() {
				read := b.StopReading(b.pods[0])
				end := b.holdList()
				return func() {
					read()
					end()
				}
			},
		},
		symptom: health.RuntimeListStall, within: sweptWithin,
		culprit: func(b *bench) health.Link {
			return health.Link{Kind: health.KindShim, PID: b.Shim(b.pods[0]), State: health.LinkUnread}
		},
		first: func(b *bench) string { return fmt.Sprintf("`kill -9 %d`", b.Shim(b.pods[0])) },
	},
	{
		row: 3, source: "the lock of [containerd 9770](https://github.com/containerd/containerd/issues/9770)", made: "a runc that hangs at `update`",
		fault: fault{
			want: health.RuntimeHelperStuck, goal: sweptWithin, limit: 20 * time.Second, back: 20 * time.Second, backLimit: 20 * time.Second, on: onContainerd,
			options:      lab.ContainerdOptions{RuncHangsOn: "update"},
			prepare:      func(b *bench) { b.victim = b.pods[0].RunContainer("victim") },
			onTheWay:     []string{health.RuntimeListStall},
			onTheWayBack: yetToBeAnswered,
			inject: func(b *bench) func() {
				b.must(os.WriteFile(b.RuncFlag(), nil, 0o644))
				end := b.holdList()
				return func() {
					b.must(os.Remove(b.RuncFlag()))
					end()
				}
			},
		},
		symptom: health.RuntimeListStall, within: sweptWithin,
		culprit: func(b *bench) health.Link {
			return health.Link{Kind: health.KindHelper, PID: b.updating(), Name: "runc"}
		},
		first: func(b *bench) string { return fmt.Sprintf("`kill %d`", b.updating()) },
	},
	{
		row: 4, source: "[kubernetes 94829](https://github.com/kubernetes/kubernetes/issues/94829)", made: "the server of a volume (FUSE) answers nothing while dockerd starts the container, and another container of that pod is made",
		fault: fault{
			want: health.PodInspectionStall, goal: sweptWithin, limit: 20 * time.Second, back: 20 * time.Second, backLimit: 30 * time.Second, on: criDockerd,
			// The kubelet's relist under way began before the fix.
			onTheWayBack: []string{health.RelistSlow},
			inject: func(b *bench) func() {
				dir := filepath.Join(b.socketDir(), fmt.Sprintf("volume-%d", time.Now().UnixNano()))
				b.must(os.Mkdir(dir, 0o755))
				b.volume = b.NewVolume(dir)
				b.victim = b.pods[0].CreateContainerWith("victim", filepath.Join(dir, "data"))
				b.volume.SilentAfter(1) // dockerd looks once before it takes the container's lock
				done := inBackground(func(ctx context.Context) { _ = b.victim.TryStart(ctx) })
				b.awaitHang("the status of one container", b.victim.StatusAnswers)
				b.pods[0].CreateContainer("beside") // which makes the kubelet look at the pod
				return func() {
					b.volume.End()
					<-done
				}
			},
		},
		within: sweptWithin,
		culprit: func(b *bench) health.Link {
			return health.Link{Kind: health.KindProcess, PID: b.volume.Server}
		},
		first: func(b *bench) string { return fmt.Sprintf("Get pid %d", b.volume.Server) },
	},
	{
		row: 6, source: "[moby 35961](https://github.com/moby/moby/issues/35961)", made: "dockerd with 200 descriptors and 400 idle connections",
		fault:  *named(dockerMatrix, "dockerd without a descriptor, 400 idle connections"),
		within: sweptWithin,
		culprit: func(b *bench) health.Link {
			return health.Link{Kind: health.KindProcess, PID: b.dockerd.Pid(), Name: "dockerd"}
		},
		first: func(b *bench) string { return fmt.Sprintf("At pid %d (", b.dockerd.Pid()) },
	},
	{
		row: 7, source: "[kubernetes 107749](https://github.com/kubernetes/kubernetes/issues/107749)", made: "a CNI plugin that hangs; it may take 30 s",
		fault:  *named(matrix, "CNI plugin hangs"),
		within: 30*time.Second + sweptWithin,
		culprit: func(b *bench) health.Link {
			return health.Link{Kind: health.KindHelper, PID: b.plugin(), Name: "slow-cni"}
		},
		first: func(b *bench) string { return fmt.Sprint(b.plugin()) },
	},
	{
		row: 9, source: "memory limit of the runtime's cgroup", made: "memory.limit_in_bytes 1 MiB above what it uses, without the OOM killer (cgroup v1); a server that gave up accept(2) for it is restarted after it",
		fault:   *hangingBehind(named(kernelFaults, "memory limit, out of memory")),
		within:  sweptWithin,
		culprit: limitedGroup,
		first:   raiseIt,
	},
	{
		row: 10, source: "CPU weight of the runtime's cgroup", made: "cpu.shares of 2 beside 4 hogs a CPU",
		fault:   *named(kernelFaults, "CPU shares of 2 beside hogs"),
		within:  30 * time.Second,
		culprit: func(b *bench) health.Link { return health.Link{Kind: health.KindRuntime, PID: b.Pid()} },
		first:   func(*bench) string { return "share of the CPUs" },
	},
	{
		row: 12, source: "a second runtime on the socket's path", made: "a second containerd that listens at the same path",
		fault:  *named(takeOvers, "a second runtime takes the socket"),
		within: sweptWithin, culprit: secondRuntimeLink, first: secondRuntimePid,
	},
	{
		row: 12, form: "b", source: "a second runtime on the socket's path", made: "a symbolic link to another runtime's socket",
		fault:  *named(takeOvers, "symbolic link to another runtime's socket"),
		within: sweptWithin, culprit: secondRuntimeLink, first: secondRuntimePid,
	},
	{
		row: 12, form: "c", source: "[cri-o](https://github.com/cri-o/cri-o): EAGAIN taken for a stale socket", made: "a second CRI-O while the first one's accept queue is full",
		fault:  *named(takeOvers, "a second CRI-O takes a full accept queue for a stale socket"),
		within: sweptWithin, culprit: secondRuntimeLink, first: secondRuntimePid,
	},
	{
		row: 13, source: "storage lock held by another process", made: "fcntl lock on images.lock, and a pod that starts; it may take 10 s",
		fault: fault{
			want: health.RuntimeStorageLocked, goal: 13 * time.Second, limit: 30 * time.Second, backLimit: 20 * time.Second, on: []string{"CRI-O"},
			inject: func(b *bench) func() {
				holder, release := lab.HoldLock(b.t, filepath.Join(b.socketDir(), "root", "overlay-images", "images.lock"), b.Pid())
				b.holder = holder
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan struct{})
				go func() {
					defer close(done)
					_ = b.cri.RunPodInNetwork(ctx)
				}()
				return func() {
					release()
					<-done
					cancel()
				}
			},
		},
		within: 10*time.Second + sweptWithin,
		culprit: func(b *bench) health.Link {
			return health.Link{Kind: health.KindProcess, PID: b.holder}
		},
		first: func(b *bench) string { return fmt.Sprintf("pid %d", b.holder) },
	},
	{
		row: 14, source: "disk frozen below the runtime's root, lists answered", made: "fsfreeze of a loop mount, and a pod that starts; it may take 10 s",
		fault:  *named(kernelFaults, "file system below the runtime's root frozen"),
		within: 10*time.Second + sweptWithin,
		culprit: func(b *bench) health.Link {
			return frozenWait
		},
		first: func(b *bench) string { return "fsfreeze -u" },
	},
}

func stoppedShim(b *bench) health.Link {
	return health.Link{Kind: health.KindShim, PID: b.Shim(b.pods[0]), State: health.LinkStopped}
}

func continueShim(b *bench) string { return fmt.Sprintf("`kill -CONT %d`", b.Shim(b.pods[0])) }

// secondRuntimeLink is the runtime that has taken the path.
func secondRuntimeLink(b *bench) health.Link {
	return health.Link{Kind: health.KindProcess, PID: b.second.Pid()}
}

func secondRuntimePid(b *bench) string { return fmt.Sprintf("pid %d", b.second.Pid()) }

// named returns a fault of another table.
func named(table []fault, name string) *fault {
	i := slices.IndexFunc(table, func(f fault) bool { return f.name == name })
	if i < 0 {
		panic("no fault " + name)
	}
	return &table[i]
}

// limitedGroup is the cgroup whose limit holds the runtime.
func limitedGroup(b *bench) health.Link {
	return health.Link{Kind: health.KindCgroup, Name: b.group.Path()}
}

func raiseIt(*bench) string { return "aise the" }

// hangingBehind returns a fault whose symptom is the list that hangs for it.
func hangingBehind(f *fault) *fault {
	out := *f
	out.onTheWay = append([]string{health.RuntimeUnresponsive, health.AcceptStalled}, f.onTheWay...)
	out.hold = time.Second
	out.inject = func(b *bench) func() {
		fix := f.inject(b)
		b.awaitHang("the list", b.cri.List)
		return fix
	}
	return &out
}

// holdList calls UpdateContainerResources on the victim again and again, as the
// kubelet's CPU manager does, and returns when the list hangs.
func (b *bench) holdList() (end func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = b.victim.UpdateResources(ctx)
		}
	}()
	end = func() {
		cancel()
		<-done
	}
	b.t.Cleanup(end)
	b.awaitHang("the list", b.cri.List)
	return end
}

// awaitHang makes a call until it hangs: that is the symptom.
func (b *bench) awaitHang(what string, call func(context.Context) error) {
	b.t.Helper()
	for began := time.Now(); time.Since(began) < 10*time.Second; {
		b.injected = time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		err := call(ctx)
		cancel()
		if status.Code(err) == codes.DeadlineExceeded {
			return
		}
	}
	b.t.Fatalf("%s does not hang", what)
}

// helper returns the pid of the oldest process whose command line holds all words,
// -1 while there is none.
func helper(words ...string) int {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return -1
	}
	oldest := -1
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil || slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(string(text), w) }) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(f, "/proc/%d/cmdline", &pid); err == nil && (oldest < 0 || pid < oldest) {
			oldest = pid
		}
	}
	return oldest
}

// updating is the runc that updates the victim.
func (b *bench) updating() int { return helper("runc", "update", b.victim.ID) }

// plugin is the CNI plugin that hangs.
func (b *bench) plugin() int { return helper(filepath.Join(b.socketDir(), "cni", "slow-cni")) }
