//go:build e2e

package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

// sweptWithin is how soon a culprit must be named that is found by asking for each
// container.
const sweptWithin = 5 * time.Second

// stoppedWithin is how soon a stopped shim must be named for which no call waits.
const stoppedWithin = 10 * time.Second

// podFaults are those of shims, helpers and what a container waits for.
var podFaults = []fault{
	{
		name: "shim stopped", want: health.ShimStuck, goal: stoppedWithin,
		make: func(b *bench) func() { return b.stopShims(1) },
		steps: []pasted{
			{holds: "ps -o pid", wantOf: func(b *bench) string { return fmt.Sprint(b.Shim(b.pods[0])) }},
			{holds: "kill -CONT", repairs: true},
		},
	},
	{
		name: "shim traced and stopped by a debugger", want: health.ShimStuck, goal: stoppedWithin,
		make:    func(b *bench) func() { return b.helper("trace", fmt.Sprint(b.Shim(b.pods[0]))) },
		culprit: theOther, next: pidOfOther,
	},
	{
		// It has not reaped it, and the shim learns of the end afterwards.
		name: "a tracer holds up an ended container", want: health.ShimStuck, goal: 45 * time.Second, limit: 60 * time.Second,
		make: func(b *bench) func() {
			name := fmt.Sprintf("--name=traced-%d", b.Pid())
			victim := b.pods[0].RunContainer("victim", name)
			first := -1
			lab.Eventually(b.t, 20*time.Second, "the container's program runs", func() error {
				first = pidOf(name)
				if first < 0 {
					return errors.New("it does not")
				}
				return nil
			})
			end := b.helper("trace", fmt.Sprint(first))
			b.injected = time.Now()
			b.must(syscall.Kill(first, syscall.SIGKILL))
			return inTurn(end, victim.Stop, victim.Remove)
		},
		culprit: theOther, next: pidOfOther,
	},
	forgetful("the state directory is hidden at a restart", (*runtime.Containerd).SmallState),
	forgetful("the root directory is hidden at a restart", func(c *runtime.Containerd) *runtime.FileSystem { return c.SmallRoot("tmpfs") }),
	{
		name: "CNI plugin hangs", want: health.RuntimeHelperStuck, goal: 33 * time.Second, limit: 40 * time.Second, // it may take 30 s
		incident:  "7 [kubernetes 107749](https://github.com/kubernetes/kubernetes/issues/107749)",
		configure: func(b *bench) { b.installPlugin(`while [ -e "$0.hang" ]; do sleep 0.2; done`) },
		make: func(b *bench) func() {
			b.must(os.WriteFile(b.file("cni", "slow-cni.hang"), nil, 0o644))
			wait := b.startPod()
			return func() {
				b.must(os.Remove(b.file("cni", "slow-cni.hang")))
				wait()
			}
		},
		culprit: func(b *bench) facts.Link {
			return facts.Link{Kind: facts.KindHelper, PID: pidOf(b.file("cni", "slow-cni")), Name: "slow-cni"}
		},
		next: func(b *bench) string { return fmt.Sprint(pidOf(b.file("cni", "slow-cni"))) },
	},
	{
		// With any name; to end its parent would leave it with the pipe.
		name: "CNI plugin waits for its child, another program", want: health.RuntimeHelperStuck, goal: 33 * time.Second, limit: 40 * time.Second,
		configure: func(b *bench) {
			b.copyProgram("sleep", b.file("cni", "waiter"))
			b.installPlugin(`"$(dirname "$0")/waiter" 120`)
		},
		make: func(b *bench) func() {
			wait := b.startPod()
			return func() {
				b.killAll(b.file("cni", "waiter"))
				wait()
			}
		},
		culprit: func(b *bench) facts.Link {
			return facts.Link{Kind: facts.KindHelper, PID: pidOf(b.file("cni", "waiter"))}
		},
		next: func(b *bench) string { return fmt.Sprintf("`kill %d`", pidOf(b.file("cni", "waiter"))) },
	},
	{
		// As iptables does: no lock shows a wait.
		name: "CNI plugin asks again and again for a lock", on: onContainerd, want: health.RuntimeHelperStuck, goal: 33 * time.Second,
		limit: 40 * time.Second, configure: func(b *bench) { b.installPlugin(`( until flock -n 9; do sleep 1; done ) 9>>"$0.lock"`) },
		make: func(b *bench) func() {
			lock := b.file("cni", "slow-cni.lock")
			b.must(os.WriteFile(lock, nil, 0o600))
			holder, release := b.HoldLock("flock", lock)
			b.other = holder
			wait := b.startPod()
			return inTurn(release, wait)
		},
		culprit: func(b *bench) facts.Link { return facts.Link{Kind: facts.KindProcess, PID: b.other} },
		next:    func(b *bench) string { return fmt.Sprintf("pid %d", b.other) },
	},
	{
		// As at a POSIX semaphore: no lock and no descriptor shows the wait.
		name: "CNI plugin waits in shared memory of a stopped process", on: onContainerd, want: health.RuntimeHelperStuck,
		goal: 33 * time.Second, limit: 40 * time.Second,
		configure: func(b *bench) {
			self, err := os.Executable()
			b.must(err)
			b.must(os.WriteFile(b.file("memory"), make([]byte, 4096), 0o600))
			b.installPlugin(fmt.Sprintf(`%s=1 exec %s %s wait`, sharedEnv, self, b.file("memory")))
		},
		make: func(b *bench) func() {
			holder := lab.Again(b.t, sharedEnv, 1)
			holder.Args = append(holder.Args, b.file("memory"))
			out, err := holder.StdoutPipe()
			b.must(err)
			lab.StartCommand(b.t, holder)
			_, err = out.Read(make([]byte, 1)) // it is ready
			b.must(err)
			b.other = holder.Process.Pid
			b.must(syscall.Kill(b.other, syscall.SIGSTOP))
			wait := b.startPod()
			return func() {
				b.must(syscall.Kill(pidOf(b.file("memory"), "wait"), syscall.SIGKILL))
				wait()
				b.must(syscall.Kill(b.other, syscall.SIGKILL))
			}
		},
		culprit: theOther, next: func(b *bench) string { return fmt.Sprintf("`kill -CONT %d`", b.other) },
	},
	{
		// The plugin has ended; the runtime waits for the end of its output.
		name: "a daemon that a CNI plugin leaves keeps its output", want: health.RuntimePeerStuck, goal: 45 * time.Second, limit: 60 * time.Second,
		configure: func(b *bench) {
			b.copyProgram("sleep", b.file("cni", "left"))
			b.installPlugin(`setsid "$(dirname "$0")/left" 600 </dev/null &`)
		},
		make: func(b *bench) func() {
			wait := b.startPod()
			return func() {
				b.killAll(b.file("cni", "left"))
				wait()
			}
		},
		back: 20 * time.Second,
		culprit: func(b *bench) facts.Link {
			return facts.Link{Kind: facts.KindProcess, PID: pidOf(b.file("cni", "left"))}
		},
		next: func(b *bench) string { return fmt.Sprintf("See what pid %d", pidOf(b.file("cni", "left"))) },
	},
	brokenRunc("each start fails: runc is no program", "no program", facts.KindFile),
	brokenRunc("each start fails: runc ends with an error", "#!/bin/sh\nexit 1\n", facts.KindRuntime),
	stopsFail("each stop of a pod fails: its network plugin does", func(b *bench) func() {
		broken := b.file("cni", "slow-cni.broken")
		b.must(os.WriteFile(broken, nil, 0o600))
		return func() { b.must(os.Remove(broken)) }
	}),
	stopsFail("each stop of a pod fails: its network plugin is gone", func(b *bench) func() {
		plugin := b.file("cni", "slow-cni")
		b.must(os.Rename(plugin, plugin+".away"))
		return func() { b.must(os.Rename(plugin+".away", plugin)) }
	}),
	hiddenProgram("each start fails: the shim's program is gone", slices.Concat(onContainerd, onCRIO), func(b *bench) string {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", b.Shim(b.pods[0])))
		b.must(err)
		return exe
	}),
	hiddenProgram("each start fails: runc is gone", onContainerd, func(b *bench) string { return lab.LookPath(b.t, "runc") }),
	startsFail(fault{
		name: "each start fails: the CNI plugin ends with an error", configure: func(b *bench) {
			namespacesInMemory(b)
			b.installPlugin("exit 1")
		},
	}, (*bench).startPod, func(*bench) func() { return func() {} }),
	startsFail(fault{
		// containerd 1.6 keeps a sandbox whose network can neither be made nor removed again, and lists it.
		name: "each start fails: the CNI plugin cannot be executed", on: onContainerd, configure: func(b *bench) {
			namespacesInMemory(b)
			b.installPlugin("")
		},
		culprit: func(b *bench) facts.Link {
			// CRI-O does not say which plugins it has, and 1.6 makes more for a pod before the network.
			if slices.Contains([]string{"CRI-O", "containerd 1.6"}, runtime.Column()) {
				return facts.Link{Kind: facts.KindRuntime, PID: b.Pid()}
			}
			return facts.Link{Kind: facts.KindFile, Name: b.file("cni", "slow-cni")}
		},
	}, (*bench).startPod, func(b *bench) func() {
		plugin := b.file("cni", "slow-cni")
		b.must(os.Chmod(plugin, 0o644))
		return func() { b.must(os.Chmod(plugin, 0o755)) }
	}),
	podsAtLimit(),
	podsAtMemoryLimit(),
	{
		name: "a daemon of the runtime's cgroup does not reap its children", want: health.KernelLimitReached, goal: 5 * time.Second, limit: 45 * time.Second,
		make: func(b *bench) func() {
			b.group = lab.NewControlGroup(b.t, "pids", b.Pid())
			const leak = `chdir $ARGV[0]; open(F,">cgroup.procs"); print F $$; close F; for (1..200) { exit if fork==0 } open(C,"pids.current"); open(F,">pids.max"); print F <C>; close F; sleep 1000`
			dir := filepath.Join(lab.CgroupRoot, "pids", b.group.Path())
			leaking := exec.Command("perl", "-e", leak, dir)
			_, end := lab.StartCommand(b.t, leaking)
			b.other = leaking.Process.Pid
			return inTurn(end, func() { b.must(os.WriteFile(filepath.Join(dir, "pids.max"), []byte("max"), 0)) })
		},
		culprit: theOther, next: pidOfOther,
	},
	{
		// No registry has it. Nothing of a start shows in a list or a directory.
		name: "the image of the sandboxes is gone", on: onContainerd, want: health.PodStartsFailing, goal: 4 * time.Minute, limit: 6 * time.Minute,
		make: func(b *bench) func() {
			b.RemoveImage()
			b.startHostPod()()
			return b.ImportImage
		},
		back:     45 * time.Second,
		evidence: func(*bench) string { return runtime.PauseImage },
		next:     func(*bench) string { return "pull " + runtime.PauseImage },
	},
	silentRegistry("an image registry does not answer", "mute"), // it has read the request
	silentRegistry("an image registry takes no connections", "deaf"),
	{
		// A runtime hook: a child of runc, with a name that no list of helpers has.
		name: "a program that runc waits for hangs", on: onContainerd, want: health.RuntimeHelperStuck, goal: 33 * time.Second, limit: 40 * time.Second,
		options: runtime.ContainerdOptions{RuncHangsOn: "create", RuncHangsIn: "nvidia-container-runtime"},
		make: func(b *bench) func() {
			b.must(os.WriteFile(b.RuncFlag(), nil, 0o644))
			wait := b.startHostPod()
			return func() {
				b.must(os.Remove(b.RuncFlag()))
				b.killAll(b.file("bin", "nvidia-container-runtime"))
				wait()
			}
		},
		culprit: func(b *bench) facts.Link { return facts.Link{Kind: facts.KindHelper} },
		next:    func(b *bench) string { return "`kill " },
	},
	{
		// runc waits for its child, which has moved to the cgroup of the pod (v1).
		name: "a CPU quota of the pods' parent cgroup holds up runc", on: onContainerd, want: health.RuntimeHelperStuck,
		goal: 34 * time.Second, limit: 45 * time.Second, back: 15 * time.Second,
		make: func(b *bench) func() {
			dir := filepath.Join(lab.CgroupRoot, "cpu", b.Cgroup)
			b.must(os.WriteFile(filepath.Join(dir, "cpu.cfs_period_us"), []byte("1000000"), 0))
			b.must(os.WriteFile(filepath.Join(dir, "cpu.cfs_quota_us"), []byte("1000"), 0))
			b.copyProgram("sh", b.file("greedy"))
			for range 3 { // they take most of it
				greedy := exec.Command(b.file("greedy"), "-c", "while :; do :; done")
				lab.StartCommand(b.t, greedy)
				b.must(os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, greedy.Process.Pid), 0))
			}
			wait := b.startHostPod()
			return func() {
				b.must(os.WriteFile(filepath.Join(dir, "cpu.cfs_quota_us"), []byte("-1"), 0))
				b.killAll(b.file("greedy"))
				wait()
			}
		},
		culprit: func(b *bench) facts.Link {
			return facts.Link{Kind: facts.KindCgroup, Name: "/" + b.Cgroup, State: facts.LinkThrottled}
		},
		next: func(b *bench) string { return "Raise the limit of the cgroup /" + b.Cgroup },
	},
	behindList(fault{
		name: "a stopped shim holds up the list", on: onContainerd1, want: health.ShimStuck,
		incident: "1 [containerd 9770](https://github.com/containerd/containerd/issues/9770)",
		make: func(b *bench) func() {
			cont := b.stopShims(1)
			end := b.holdList()
			return inTurn(cont, end)
		},
		culprit: stoppedShim, next: continueShim,
	}),
	behindList(fault{
		name: "a shim that is stopped within an update holds up the list", on: onContainerd2, want: health.ShimStuck,
		incident: "1c [containerd 9770](https://github.com/containerd/containerd/issues/9770)",
		options:  runtime.ContainerdOptions{RuncHangsOn: "update"},
		make: func(b *bench) func() {
			b.must(os.WriteFile(b.RuncFlag(), nil, 0o644))
			end := b.holdList()
			cont := b.stopShims(1)
			b.must(os.Remove(b.RuncFlag()))
			return inTurn(cont, end)
		},
		culprit: stoppedShim, next: continueShim,
	}),
	behindList(fault{
		name: "runc waits for a frozen file system and holds up the list", on: onContainerd, want: health.RuntimeHelperStuck,
		incident:  "1b [containerd 9770](https://github.com/containerd/containerd/issues/9770)",
		configure: func(b *bench) { b.disk = b.RuncStateOnDisk() },
		make: func(b *bench) func() {
			thaw := b.disk.Freeze()
			end := b.holdList()
			return inTurn(thaw, end)
		},
		culprit: func(*bench) facts.Link { return frozenWait },
		next:    func(b *bench) string { return "`fsfreeze -u " + b.disk.Path() + "`" },
	}),
	behindList(fault{
		name: "runc hangs at an update and holds up the list", on: onContainerd, want: health.RuntimeHelperStuck, restart: true,
		incident: "3 the lock of [containerd 9770](https://github.com/containerd/containerd/issues/9770)",
		options:  runtime.ContainerdOptions{RuncHangsOn: "update"},
		make: func(b *bench) func() {
			b.must(os.WriteFile(b.RuncFlag(), nil, 0o644))
			end := b.holdList()
			return func() {
				_ = os.Remove(b.RuncFlag())
				end()
			}
		},
		culprit: func(b *bench) facts.Link {
			return facts.Link{Kind: facts.KindHelper, PID: b.updating(), Name: "runc"}
		},
		next:  func(b *bench) string { return fmt.Sprintf("`kill %d`", b.updating()) },
		steps: []pasted{{holds: "ps -o pid", want: "update"}},
	}),
	behindList(fault{
		// Its helper is in the same cgroup, and waits as well.
		name: "a shim out of memory holds up the list", on: onContainerd2, want: health.ShimStuck,
		make: func(b *bench) func() {
			b.group = lab.NewControlGroup(b.t, "memory", b.Shim(b.pods[0]))
			lift := b.group.LimitMemory(4096)
			end := b.holdList()
			return inTurn(lift, end)
		},
		culprit: func(b *bench) facts.Link { return facts.Link{Kind: facts.KindCgroup, Name: b.group.Path()} },
		next:    func(b *bench) string { return "Raise the limit of the cgroup " + b.group.Path() },
	}),
	behindList(fault{
		// Between two updates the list is answered.
		name: "a shim's CPU quota of 2 ms a second holds up one list after the other", on: onContainerd, want: health.ShimStuck,
		make: func(b *bench) func() {
			b.group = lab.NewControlGroup(b.t, "cpu", b.Shim(b.pods[0]))
			b.group.Quota(time.Millisecond)
			end := b.holdList()
			return inTurn(func() { b.group.Quota(0) }, end)
		},
		hold: 50 * time.Second, back: 45 * time.Second, onTheWayBack: []string{health.RuntimeHelperStuck}, // its updates were slow
		culprit: func(b *bench) facts.Link { return facts.Link{Kind: facts.KindCgroup, Name: b.group.Path()} },
		next:    func(b *bench) string { return "Raise the limit of the cgroup " + b.group.Path() },
	}),
	{
		// A changed configuration waits for the plugin, and Status for that.
		name: "Status waits for a CNI plugin", on: onContainerd2, want: health.RuntimeHelperStuck, fresh: true, // for its configuration
		goal: 10 * time.Second, limit: 25 * time.Second, onTheWay: []string{health.RuntimeNotReady}, onTheWayBack: []string{health.RuntimeNotReady},
		prepare: func(b *bench) { b.installPlugin(`while [ -e "$0.hang" ]; do sleep 0.2; done`) },
		make: func(b *bench) func() {
			b.must(os.WriteFile(b.file("cni", "slow-cni.hang"), nil, 0o644))
			wait := b.startPod()
			lab.Eventually(b.t, 20*time.Second, "the plugin runs", func() error {
				if pidOf(b.file("cni", "slow-cni")) < 0 {
					return errors.New("it does not")
				}
				return nil
			})
			b.WriteCNIConfig()
			b.injected = time.Now()
			return func() {
				b.must(os.Remove(b.file("cni", "slow-cni.hang")))
				wait()
			}
		},
		culprit: func(b *bench) facts.Link {
			return facts.Link{Kind: facts.KindHelper, PID: pidOf(b.file("cni", "slow-cni"))}
		},
	},
	{
		// A process that was started in its PID namespace writes to a frozen file system; no call of plegd's waits.
		name: "a killed container does not end", on: onContainerd, want: health.ShimStuck, goal: 45 * time.Second, limit: 60 * time.Second,
		fresh:     true, // there is no file yet, and one container more
		configure: func(b *bench) { b.disk = b.RuncStateOnDisk() },
		prepare:   func(b *bench) { b.victim = b.pods[0].RunContainer("victim") },
		make: func(b *bench) func() {
			first := b.newestChild(b.Shim(b.pods[0]))
			thaw := b.disk.Freeze()
			file := filepath.Join(runtime.RuncState, fmt.Sprint("member-", b.Pid()))
			member := exec.Command("nsenter", "--pid", "--mount=/proc/"+fmt.Sprint(b.Namespace.Pid())+"/ns/mnt", "--target", fmt.Sprint(first), "touch", file)
			b.must(member.Start())
			lab.Eventually(b.t, 20*time.Second, "it waits for the file system", func() error {
				for pid, line := range lab.CommandLines() {
					if strings.HasPrefix(line, "touch\x00"+file) && strings.HasPrefix(lab.State(pid), "D") {
						return nil
					}
				}
				return errors.New("it does not")
			})
			b.injected = time.Now()
			b.must(syscall.Kill(first, syscall.SIGKILL))
			return func() {
				thaw()
				_ = member.Wait() // it has been killed
			}
		},
		culprit: func(*bench) facts.Link { return frozenWait },
	},
	{
		// Its policy for images: a pull waits, and no call of plegd's.
		name: "a file that the runtime reads is a FIFO", on: onCRIO, want: health.RuntimeThreadStuck, goal: 40 * time.Second, limit: 60 * time.Second,
		make: func(b *bench) func() {
			policy := b.file("policy.json")
			text, err := os.ReadFile(policy)
			b.must(err)
			b.must(os.Remove(policy))
			b.must(syscall.Mkfifo(policy, 0o600))
			wait := inBackground(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
				defer cancel()
				_ = b.cri.PullImage(ctx, lab.FreeAddress(b.t)+"/image:1")
			})
			return func() {
				fifo, err := os.OpenFile(policy, os.O_WRONLY, 0)
				b.must(err)
				b.must(os.WriteFile(policy+".new", text, 0o600))
				b.must(os.Rename(policy+".new", policy))
				_, err = fifo.Write(text)
				b.must(errors.Join(err, fifo.Close()))
				wait()
			}
		},
		culprit: func(b *bench) facts.Link { return facts.Link{Kind: facts.KindRuntime, PID: b.Pid()} },
		next:    func(b *bench) string { return fmt.Sprintf("FIFO that pid %d", b.Pid()) },
	},
	{
		// Its container runs on, and no call waits.
		name: "a conmon is killed", on: onCRIO, want: health.ShimStuck, goal: 75 * time.Second, limit: 100 * time.Second,
		fresh:   true, // one container more
		prepare: func(b *bench) { b.victim = b.pods[0].RunContainer("victim") },
		make: func(b *bench) func() {
			b.must(syscall.Kill(pidOf("conmon", b.victim.ID), syscall.SIGKILL))
			return inTurn(b.victim.Stop, b.victim.Remove)
		},
		back: 20 * time.Second, onTheWayBack: []string{health.PodInspectionStall}, // while it is stopped
		culprit: func(*bench) facts.Link {
			return facts.Link{Kind: facts.KindShim, Name: "conmon", State: facts.LinkEnded}
		},
		next: func(*bench) string { return "Delete the pod" },
	},
	{
		name: "descriptors nearly used up", want: health.FDsRunningOut, goal: 5 * time.Second, options: runtime.ContainerdOptions{OpenFiles: 256},
		restart: true,
		make: func(b *bench) func() {
			open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.Pid()))
			b.must(err)
			return b.connect(256*9/10 - len(open))
		},
		steps: []pasted{{holds: "ls -l /proc/", want: "socket"}},
	},
	{
		name: "FUSE server does not answer", want: health.RuntimeStorageStall, goal: 13 * time.Second, limit: 25 * time.Second,
		evidence: func(*bench) string { return "fuse" },
		culprit:  func(*bench) facts.Link { return facts.Link{Kind: facts.KindProcess} },
		make: func(b *bench) func() {
			dir := b.file(fmt.Sprintf("fuse-%d", time.Now().UnixNano()))
			b.must(os.Mkdir(dir, 0o755))
			end := b.DeadFUSE(dir)
			wait := inBackground(func() {
				mount := &runtimeapi.Mount{HostPath: filepath.Join(dir, "volume"), ContainerPath: "/volume"}
				_ = b.pods[0].TryContainer(context.Background(), mount)
			})
			return inTurn(end, wait)
		},
		steps: []pasted{
			{holds: "/stack", want: "fuse"},
			{holds: "/proc/pressure/io", want: "some avg10="},
			{holds: "grep -e nfs -e fuse", want: "fuse", inside: true},
		},
	},
	{
		name: "a fanotify agent answers nothing about runc", on: onContainerd, want: health.RuntimeHelperStuck, goal: 33 * time.Second,
		limit: 40 * time.Second, options: runtime.ContainerdOptions{RuncHangsOn: "nothing"},
		make: func(b *bench) func() {
			end := b.helper("fanotify", b.file("bin"))
			wait := b.startHostPod()
			return inTurn(end, wait)
		},
		culprit: theOther,
	},
	{
		// Lists take 1 ms, and no pod starts.
		name: "the reader of the runtime's log is stopped", on: onContainerd, want: health.RuntimeThreadStuck, goal: 15 * time.Second,
		limit: 30 * time.Second, fresh: true, options: runtime.ContainerdOptions{LogReader: true},
		make: func(b *bench) func() {
			cont := runtime.StopProcess(b.t, b.LogReader())
			wait := inBackground(func() { // until the pipe is full, by errors that the runtime logs
				for range 1000 {
					ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
					err := b.cri.PullImage(ctx, "127.0.0.1:1/none:1")
					cancel()
					if status.Code(err) == codes.DeadlineExceeded {
						return
					}
				}
			})
			return inTurn(cont, wait)
		},
		culprit: func(b *bench) facts.Link { return facts.Link{Kind: facts.KindProcess, PID: b.LogReader()} },
	},
}

// startsFail completes a fault for which each start of a pod fails at once. There are no metrics of a kubelet.
func startsFail(f fault, start func(*bench) (wait func()), spoil func(*bench) (undo func())) fault {
	f.on, f.want, f.goal, f.limit, f.back = slices.Concat(onContainerd, onCRIO), health.PodStartsFailing, 45*time.Second, 75*time.Second, 20*time.Second
	if f.culprit == nil {
		f.culprit = func(b *bench) facts.Link { return facts.Link{Kind: facts.KindRuntime, PID: b.Pid()} }
	}
	f.make = func(b *bench) func() {
		undo := spoil(b)
		end := make(chan struct{})
		wait := inBackground(func() {
			for {
				start(b)()
				select {
				case <-end:
					return
				case <-time.After(time.Second): // as the kubelet does for several pods
				}
			}
		})
		return func() {
			close(end)
			wait()
			undo()
			b.t.Cleanup(b.cri.RunPod().Discard) // it is over
		}
	}
	return f
}

// brokenRunc is that of another file in the place of runc.
func brokenRunc(name, text string, culprit facts.LinkKind) fault {
	runc := func(b *bench) string {
		if strings.HasPrefix(runtime.Column(), onCRIO[0]) {
			return b.file("runc")
		}
		return b.file("bin", "runc")
	}
	f := startsFail(fault{name: name, options: runtime.ContainerdOptions{RuncHangsOn: "nothing"}}, (*bench).startHostPod, func(b *bench) func() {
		b.must(os.Rename(runc(b), runc(b)+".kept"))
		b.must(os.WriteFile(runc(b), []byte(text), 0o755))
		return func() { b.must(os.Rename(runc(b)+".kept", runc(b))) }
	})
	f.culprit = func(*bench) facts.Link { return facts.Link{Kind: culprit} }
	f.evidence = runc
	return f
}

// hiddenProgram is that of a program that is no longer there, as the runtime sees it.
func hiddenProgram(name string, on []string, program func(*bench) string) fault {
	f := startsFail(fault{name: name}, (*bench).startHostPod, func(b *bench) func() {
		hidden := program(b)
		inside := func(argv ...string) {
			b.must(exec.Command("nsenter", append([]string{"--mount", "--pid", "--target", fmt.Sprint(b.Namespace.Pid())}, argv...)...).Run())
		}
		inside("mount", "--bind", "/dev/null", hidden)
		return func() { inside("umount", hidden) }
	})
	f.on = on
	f.culprit = func(b *bench) facts.Link { return facts.Link{Kind: facts.KindFile, Name: program(b)} }
	f.next = func(b *bench) string {
		return "Put the program back, as by installing its package again: " + program(b)
	}
	return f
}

// podsAtLimit is that of the tasks of the cgroup of all pods (v1).
func podsAtLimit() fault {
	limit := func(b *bench) string { return filepath.Join(lab.CgroupRoot, "pids", b.Cgroup, "pids.max") }
	f := startsFail(fault{name: "each start fails: the pids limit of the pods' parent cgroup"}, (*bench).startHostPod, func(b *bench) func() {
		b.t.Cleanup(b.cri.RunPod().Discard)
		b.t.Cleanup(b.cri.RunPod().Discard)
		b.must(os.WriteFile(limit(b), []byte("2"), 0))
		return func() { b.must(os.WriteFile(limit(b), []byte("max"), 0)) }
	})
	f.on = onContainerd
	f.culprit = func(b *bench) facts.Link { return facts.Link{Kind: facts.KindCgroup, Name: "/" + b.Cgroup} }
	f.next = func(b *bench) string { return limit(b) + " is 2" }
	return f
}

// podsAtMemoryLimit is that of the memory of the cgroup of all pods (v1), which a file of a tmpfs fills.
func podsAtMemoryLimit() fault {
	file := func(b *bench, name string) string { return filepath.Join(lab.CgroupRoot, "memory", b.Cgroup, name) }
	f := startsFail(fault{name: "each start fails: the memory limit of the pods' parent cgroup"}, (*bench).startHostPod, func(b *bench) func() {
		b.must(os.WriteFile(file(b, "memory.swappiness"), []byte("0"), 0))
		memory := fmt.Sprint("/dev/shm/plegd-e2e-", b.Pid())
		b.must(exec.Command("sh", "-c", `echo $$ >"$0" && head -c 67108864 /dev/zero >"$1"`, file(b, "cgroup.procs"), memory).Run())
		text, err := os.ReadFile(file(b, "memory.usage_in_bytes"))
		b.must(err)
		used, err := strconv.Atoi(strings.TrimSpace(string(text)))
		b.must(err)
		b.must(os.WriteFile(file(b, "memory.limit_in_bytes"), fmt.Append(nil, used+256<<10), 0))
		return func() {
			b.must(os.WriteFile(file(b, "memory.limit_in_bytes"), []byte("-1"), 0))
			b.must(os.Remove(memory))
		}
	})
	f.on = onContainerd
	f.culprit = func(b *bench) facts.Link { return facts.Link{Kind: facts.KindCgroup, Name: "/" + b.Cgroup} }
	f.next = func(b *bench) string { return file(b, "memory.limit_in_bytes") + " is" }
	return f
}

// namespacesInMemory has network namespaces kept on a tmpfs, as on a node.
func namespacesInMemory(b *bench) { b.SmallDir("/run/netns") }

// makesNetwork is the end of a plugin that makes a network.
const makesNetwork = `echo '{"cniVersion": "0.3.1", "interfaces": [{"name": "eth0", "sandbox": "'$CNI_NETNS'"}],
"ips": [{"version": "4", "interface": 0, "address": "10.88.0.5/16"}]}'; exit 0`

// stopsFail is a pod whose stop fails again and again, as one whose network plugin fails does. The plugin ends with an error once
// the file broken is there.
func stopsFail(name string, damage func(b *bench) (repair func())) fault {
	const plugin = makesNetwork + `; fi
if [ "$CNI_COMMAND" = DEL ] && [ -e "$0.broken" ]; then echo '{"cniVersion": "0.3.1", "code": 11, "msg": "no lease"}'; exit 1`
	var pod *runtime.Pod
	return fault{
		name: name, on: onContainerd, want: health.PodStopsFailing, goal: 80 * time.Second, limit: 100 * time.Second, fresh: true,
		configure: namespacesInMemory,
		prepare: func(b *bench) {
			b.installPlugin(plugin)
			made, err := b.cri.TryPodInNetwork(b.t.Context())
			b.must(err)
			pod = made
		},
		make: func(b *bench) func() {
			repair := damage(b)
			ctx, cancel := context.WithCancel(b.t.Context())
			wait := inBackground(func() {
				again := time.NewTicker(2 * time.Second)
				defer again.Stop()
				for ctx.Err() == nil {
					pod.Discard()
					select {
					case <-again.C:
					case <-ctx.Done():
					}
				}
			})
			return inTurn(cancel, wait, repair, pod.Discard)
		},
		culprit: func(*bench) facts.Link { return facts.Link{Kind: facts.KindPod, RuntimeID: pod.ID} },
		next:    func(*bench) string { return "| grep " + pod.ID[:13] },
	}
}

// forgetful is a start of the runtime over a file system that hides one of its directories: the shims
// of its pods live on.
func forgetful(name string, hide func(*runtime.Containerd) *runtime.FileSystem) fault {
	return fault{
		name: name, on: onContainerd, want: health.PodsLost, goal: 45 * time.Second, limit: 60 * time.Second,
		fresh: true, restarts: true, onTheWay: starting, onTheWayBack: starting, back: 45 * time.Second,
		make: func(b *bench) func() {
			b.Kill()
			hidden := hide(b.Containerd)
			b.Start()
			b.injected = time.Now() // it lists from now on
			return inTurn(b.Kill, hidden.Unmount, b.Start)
		},
		culprit: func(*bench) facts.Link { return facts.Link{Kind: facts.KindShim} },
		next:    func(*bench) string { return "root and state directories" },
	}
}

// frozenWait is where a call with a path waits for a frozen file system.
var frozenWait = facts.Link{Kind: facts.KindKernel, Name: "percpu_rwsem_wait", State: facts.LinkBlocked}

// behindList completes a fault behind which ListContainers hangs.
func behindList(f fault) fault {
	f.symptom, f.goal, f.limit, f.back = health.RuntimeListStall, sweptWithin, 20*time.Second, max(f.back, 20*time.Second)
	f.onTheWay = []string{health.RuntimeListStall}
	// In the moment in which the shim or its runc is well and the list not yet answered.
	f.onTheWayBack = append(f.onTheWayBack, health.RuntimeListStall, health.RelistSlow)
	f.prepare = func(b *bench) { b.victim = b.pods[0].RunContainer("victim") }
	return f
}

func stoppedShim(b *bench) facts.Link {
	return facts.Link{Kind: facts.KindShim, PID: b.Shim(b.pods[0]), State: facts.LinkStopped}
}

func continueShim(b *bench) string { return fmt.Sprintf("`kill -CONT %d`", b.Shim(b.pods[0])) }

// stopShims stops the shims of some pods and returns what continues them.
func (b *bench) stopShims(n int) (cont func()) {
	b.t.Helper()
	var pids []int
	for _, p := range b.pods[:n] {
		pids = append(pids, b.Shim(p))
	}
	signal := func(s syscall.Signal) {
		for _, pid := range pids {
			b.must(syscall.Kill(pid, s))
		}
	}
	signal(syscall.SIGSTOP)
	return func() { signal(syscall.SIGCONT) }
}

// installPlugin gives the runtime a network plugin that runs a command first, and never
// makes a network. While it runs, cri-dockerd reads its configuration each 5 s only.
func (b *bench) installPlugin(command string) {
	b.t.Helper()
	script := strings.Replace(runtime.FakePlugin, "#!/bin/sh\n", "#!/bin/sh\nif [ \"$CNI_COMMAND\" = ADD ]; then :; "+command+"\nfi\n", 1)
	b.must(os.WriteFile(b.file("cni", "loopback"), []byte(runtime.FakePlugin), 0o755))
	b.must(os.WriteFile(b.file("cni", "slow-cni"), []byte(script), 0o755))
	draft := b.CNIConfig + ".draft"
	b.must(os.WriteFile(draft, []byte(`{"cniVersion": "0.3.1", "name": "lab", "plugins": [{"type": "slow-cni"}]}`), 0o644))
	b.must(os.Rename(draft, b.CNIConfig))
	time.Sleep(500 * time.Millisecond) // until it is read
}

// startPod starts a pod that calls the network plugin, and returns what waits for its end.
func (b *bench) startPod() (wait func()) {
	return inBackground(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		_ = b.cri.RunPodInNetwork(ctx) // the plugin makes no network
	})
}

// startHostPod starts a pod in the host's network, for which runc is called.
func (b *bench) startHostPod() (wait func()) {
	return inBackground(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if pod, err := b.cri.TryRunPod(ctx); err == nil {
			pod.Discard()
		}
	})
}

// copyProgram makes a program of its own of an installed one.
func (b *bench) copyProgram(name, path string) {
	b.t.Helper()
	text, err := os.ReadFile(lab.LookPath(b.t, name))
	b.must(err)
	b.must(os.WriteFile(path, text, 0o755))
}

// killAll ends the processes that run a program.
func (b *bench) killAll(program string) {
	b.t.Helper()
	for pid, line := range lab.CommandLines() {
		if argv := strings.Split(line, "\x00"); slices.Contains(argv[:1], program) {
			b.must(syscall.Kill(pid, syscall.SIGKILL))
		}
	}
}

// holdList calls UpdateContainerResources on the victim again and again, as the
// kubelet's CPU manager does, and returns when the list hangs.
func (b *bench) holdList() (end func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	wait := inBackground(func() {
		var err error
		for ctx.Err() == nil && status.Code(err) != codes.Unavailable { // after a restart it would hang again
			err = b.victim.UpdateResources(ctx)
		}
	})
	end = func() {
		cancel()
		wait()
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

// newestChild returns the child of a process that was started last.
func (b *bench) newestChild(pid int) int {
	b.t.Helper()
	all, err := proc.NewTable("/proc").Processes(context.Background(), 0)
	b.must(err)
	children := all.Children(pid)
	if len(children) == 0 {
		b.t.Fatalf("pid %d has no child", pid)
	}
	return slices.MaxFunc(children, func(a, b proc.Process) int { return cmp.Compare(a.Start, b.Start) }).PID
}

// updating is the runc that updates the victim.
func (b *bench) updating() int { return pidOf("runc", "update", b.victim.ID) }

// silentRegistry is a registry, in a mode of the helper, of which a pull waits for an answer. Nothing of plegd's waits.
func silentRegistry(name, mode string) fault {
	return fault{
		name: name, on: onContainerd, want: health.RuntimePeerStuck, goal: 26 * time.Second, limit: 40 * time.Second,
		make: func(b *bench) func() {
			address := lab.FreeAddress(b.t)
			end := b.helper(mode, address)
			wait := inBackground(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
				defer cancel()
				_ = b.cri.PullImage(ctx, address+"/image:1")
			})
			return inTurn(end, wait)
		},
		back:    20 * time.Second,
		culprit: theOther,
		next:    func(b *bench) string { return fmt.Sprintf("Get pid %d", b.other) },
	}
}
