//go:build e2e

package chain

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/health"
)

// want is what must be said of a wait: the pids of the chain, and the kind and
// state of its last link.
type want struct {
	pids    []int
	kind    health.LinkKind
	state   health.LinkState
	unknown string // part of it; "" for a chain that ends with the culprit
	name    string // part of the last link's name
}

func (w want) check(t *testing.T, c health.Chain) {
	t.Helper()
	var pids []int
	for _, l := range c.Links {
		if l.PID != 0 {
			pids = append(pids, l.PID)
		}
	}
	last := health.Link{}
	if n := len(c.Links); n > 0 {
		last = c.Links[n-1]
	}
	if !slices.Equal(pids, w.pids) {
		t.Errorf("processes %d, want %d", pids, w.pids)
	}
	if w.unknown == "" && c.Unknown != "" || !strings.Contains(c.Unknown, w.unknown) {
		t.Errorf("unknown %q, want %q", c.Unknown, w.unknown)
	}
	if last.Kind != w.kind || last.State != w.state || !strings.Contains(last.Name, w.name) {
		t.Errorf("ends with %s %q %s, want %s %q %s", last.Kind, last.Name, last.State, w.kind, w.name, w.state)
	}
}

const (
	sleeps = `print "ready\n"; sleep 1000`
	// locks takes the first file's lock and then waits for the second's.
	locks = `open(A,'>>',$ARGV[0]); flock(A,LOCK_EX); print "ready\n"; $_=<STDIN>; open(B,'>>',$ARGV[1]); flock(B,LOCK_EX); sleep 1000`
	// holds has a lock, waitsFor waits for it.
	holds    = `open(A,'>>',$ARGV[0]); flock(A,LOCK_EX); print "ready\n"; sleep 1000`
	waitsFor = `open(A,'>>',$ARGV[0]); print "ready\n"; flock(A,LOCK_EX); sleep 1000`
	listens  = `socket(S,AF_UNIX,SOCK_STREAM,0); bind(S,sockaddr_un($ARGV[0])) or die; listen(S,5); print "ready\n"; `
	connects = `socket(S,AF_UNIX,SOCK_STREAM,0); connect(S,sockaddr_un($ARGV[0])) or die; `
)

func TestStopped(t *testing.T) {
	p := perl(t, sleeps)
	p.stop(t)
	want{pids: []int{p.pid}, kind: health.KindProcess, state: health.LinkStopped}.check(t, walked(t, p.pid))
	if c := unprivileged(t, p.pid); c.Unknown != "" || c.Links[0].State != health.LinkStopped {
		t.Error("that a process is stopped anybody can see")
	}
}

func TestTraced(t *testing.T) {
	p := perl(t, sleeps)
	tracer := program(t, "trace", strconv.Itoa(p.pid))
	tracer.asleep(t)
	want{pids: []int{p.pid, tracer.pid}, kind: health.KindProcess, state: health.LinkAsleep}.check(t, walked(t, p.pid))
	tracer.stop(t)
	want{pids: []int{p.pid, tracer.pid}, kind: health.KindProcess, state: health.LinkStopped}.check(t, walked(t, p.pid))
}

func TestFrozen(t *testing.T) {
	p := perl(t, sleeps)
	dir := cgroup(t, "freezer", p.pid)
	write(t, dir+"/freezer.state", "FROZEN")
	t.Cleanup(func() { write(t, dir+"/freezer.state", "THAWED") })
	want{pids: []int{p.pid}, kind: health.KindCgroup, state: health.LinkFrozen, name: filepath.Base(dir)}.check(t, walked(t, p.pid))
}

// TestFrozenByParent: the cgroup that is named is the one to thaw.
func TestFrozenByParent(t *testing.T) {
	p := perl(t, sleeps)
	dir := cgroup(t, "freezer", p.pid)
	below := dir + "/below"
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		write(t, dir+"/freezer.state", "THAWED")
		_ = unix.Kill(p.pid, unix.SIGKILL)
		eventually(t, func() bool { return os.Remove(below) == nil })
	})
	write(t, below+"/cgroup.procs", strconv.Itoa(p.pid))
	write(t, dir+"/freezer.state", "FROZEN")
	want{pids: []int{p.pid}, kind: health.KindCgroup, state: health.LinkFrozen, name: filepath.Base(dir)}.check(t, walked(t, p.pid))
	if last := walked(t, p.pid).Links[1]; strings.HasSuffix(last.Name, "below") {
		t.Errorf("%q is named, and its parent is frozen", last.Name)
	}
}

func TestFrozenFileSystem(t *testing.T) {
	mount := loopMount(t)
	run(t, "fsfreeze", "-f", mount)
	thawed := false
	thaw := func() {
		if !thawed {
			run(t, "fsfreeze", "-u", mount)
			thawed = true
		}
	}
	t.Cleanup(thaw)
	for name, script := range map[string]string{
		"writes": `open(A,'>>',"$ARGV[0]/f"); print "ready\n"; syswrite(A,"x"); sleep 1000`,
		"makes":  `print "ready\n"; mkdir("$ARGV[0]/dir-$$"); sleep 1000`,
	} {
		t.Run(name, func(t *testing.T) {
			if name == "writes" {
				thaw()
				write(t, mount+"/f", "")
				run(t, "fsfreeze", "-f", mount)
				thawed = false
			}
			p := perl(t, script, mount)
			eventually(t, func() bool { return strings.HasPrefix(state(p.pid), "D") })
			w := want{pids: []int{p.pid}, kind: health.KindMount, state: health.LinkFrozen, name: mount}
			if name == "makes" { // the path lies in the memory of the process, which is not read
				w.kind, w.state, w.name = health.KindKernel, health.LinkBlocked, ""
			}
			w.check(t, walked(t, p.pid))
			if c := unprivileged(t, p.pid); c.Unknown == "" || len(c.Links) != 1 {
				t.Error("without privilege the mount cannot be known")
			}
			thaw()
		})
		run(t, "fsfreeze", "-f", mount)
		thawed = false
	}
}

// TestFuse: the server of a mount is named by the requests that wait for it, also where
// it has read them and waits for the next one, idle.
func TestFuse(t *testing.T) {
	for _, mode := range []string{"fuse", "fusereads"} {
		t.Run(mode, func(t *testing.T) {
			dir := t.TempDir()
			server := program(t, mode, dir)
			t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
			p := perl(t, `print "ready\n"; open(A,'<',"$ARGV[0]/file"); sleep 1000`, dir).asleep(t)
			server.endFirst(t)
			want{pids: []int{p.pid, server.pid}, kind: health.KindProcess, state: health.LinkAsleep}.check(t, walked(t, p.pid))
			server.stop(t)
			want{pids: []int{p.pid, server.pid}, kind: health.KindProcess, state: health.LinkStopped}.check(t, walked(t, p.pid))
		})
	}
}

// TestFanotify: who opens a file waits for the agent that permits it.
func TestFanotify(t *testing.T) {
	dir := filepath.Dir(socketPath(t))
	write(t, dir+"/file", "")
	agent := program(t, "fanotify", dir)
	p := perl(t, `print "ready\n"; open(A,'<',"$ARGV[0]/file"); sleep 1000`, dir).asleep(t)
	agent.endFirst(t)
	want{pids: []int{p.pid, agent.pid}, kind: health.KindProcess, state: health.LinkAsleep}.check(t, walked(t, p.pid))
	agent.stop(t)
	want{pids: []int{p.pid, agent.pid}, kind: health.KindProcess, state: health.LinkStopped}.check(t, walked(t, p.pid))
}

func TestSocketNotAnswered(t *testing.T) {
	path := socketPath(t)
	server := perl(t, listens+`accept(C,S); print "accepted\n"; sysread(C,$b,100); sleep 1000`, path)
	client := perl(t, connects+`print "ready\n"; syswrite(S,"a question"); sysread(S,$b,1)`, path).asleep(t)
	server.asleep(t)
	want{pids: []int{client.pid, server.pid}, kind: health.KindProcess, state: health.LinkAsleep}.check(t, walked(t, client.pid))
	server.stop(t)
	want{pids: []int{client.pid, server.pid}, kind: health.KindProcess, state: health.LinkStopped}.check(t, walked(t, client.pid))
	if c := unprivileged(t, client.pid); c.Unknown == "" || len(c.Links) != 1 {
		t.Error("without privilege the peer cannot be known")
	}
}

func TestSocketNotRead(t *testing.T) {
	path := socketPath(t)
	server := perl(t, listens+`accept(C,S); sleep 1000`, path)
	client := perl(t, connects+`print "ready\n"; while (1) { syswrite(S,"x" x 4096) }`, path).asleep(t)
	want{pids: []int{client.pid, server.pid}, kind: health.KindProcess, state: health.LinkUnread}.check(t, walked(t, client.pid))
}

func TestSocketNotAccepted(t *testing.T) {
	path := socketPath(t)
	server := perl(t, listens+`sleep 1000`, path)
	server.stop(t)
	client := perl(t, connects+`print "ready\n"; syswrite(S,"a question"); sysread(S,$b,1)`, path).asleep(t)
	c := walked(t, client.pid)
	if strings.Contains(c.Unknown, "listeners") {
		t.Skip("SKIPPED: connections wait at another listener of this machine")
	}
	want{pids: []int{client.pid, server.pid}, kind: health.KindProcess, state: health.LinkStopped}.check(t, c)
}

func TestPipes(t *testing.T) {
	fifo := socketPath(t)
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("nobody writes", func(t *testing.T) {
		reader := perl(t, `print "ready\n"; open(A,'<',$ARGV[0]); sysread(A,$b,1); sleep 1000`, fifo)
		writer := perl(t, `open(A,'>',$ARGV[0]); `+sleeps, fifo).asleep(t)
		reader.asleep(t)
		want{pids: []int{reader.pid, writer.pid}, kind: health.KindProcess, state: health.LinkAsleep}.check(t, walked(t, reader.pid))
	})
	t.Run("nobody reads", func(t *testing.T) {
		writer := perl(t, `print "ready\n"; open(A,'>',$ARGV[0]); while (1) { syswrite(A,"x" x 4096) }`, fifo)
		reader := perl(t, `open(A,'<',$ARGV[0]); `+sleeps, fifo)
		reader.stop(t)
		writer.asleep(t)
		want{pids: []int{writer.pid, reader.pid}, kind: health.KindProcess, state: health.LinkStopped}.check(t, walked(t, writer.pid))
	})
}

func TestLocks(t *testing.T) {
	for name, scripts := range map[string][2]string{
		"flock": {holds, waitsFor},
		"fcntl": {
			`open(A,'+>>',$ARGV[0]); my $l=pack("s s x4 q q i x4",F_WRLCK,0,0,0,0); fcntl(A,F_SETLK,$l) or die; ` + sleeps,
			`open(A,'+>>',$ARGV[0]); my $l=pack("s s x4 q q i x4",F_WRLCK,0,0,0,0); print "ready\n"; fcntl(A,F_SETLKW,$l); sleep 1000`,
		},
		"open file": {
			`open(A,'+>>',$ARGV[0]); my $l=pack("s s x4 q q i x4",F_WRLCK,0,0,0,0); fcntl(A,37,$l) or die; ` + sleeps,
			`open(A,'+>>',$ARGV[0]); my $l=pack("s s x4 q q i x4",F_WRLCK,0,0,0,0); print "ready\n"; fcntl(A,38,$l); sleep 1000`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := socketPath(t)
			holder := perl(t, scripts[0], file).asleep(t)
			waiter := perl(t, scripts[1], file).asleep(t)
			want{pids: []int{waiter.pid, holder.pid}, kind: health.KindProcess, state: health.LinkAsleep}.check(t, walked(t, waiter.pid))
			c := unprivileged(t, waiter.pid)
			if last := c.Links[len(c.Links)-1]; c.Unknown == "" || last.PID != holder.pid && last.PID != waiter.pid {
				t.Error("without privilege it cannot be known what the holder waits for")
			}
		})
	}
}

func TestChild(t *testing.T) {
	parent := perl(t, `if (!($p=fork)) { exec "sleep","1000" } print "ready\n"; waitpid($p,0)`).asleep(t)
	child := childOf(t, parent.pid)
	want{pids: []int{parent.pid, child}, kind: health.KindProcess, state: health.LinkAsleep, name: "sleep"}.check(t, walked(t, parent.pid))
	_ = unix.Kill(child, unix.SIGKILL)
}

func TestZombie(t *testing.T) {
	parent := perl(t, `if (!($p=fork)) { exit } `+sleeps)
	child := childOf(t, parent.pid)
	eventually(t, func() bool { return strings.HasPrefix(state(child), "Z") })
	parent.asleep(t)
	want{pids: []int{child, parent.pid}, kind: health.KindProcess, state: health.LinkAsleep}.check(t, walked(t, child))
}

func TestThree(t *testing.T) {
	file, fifo := socketPath(t), socketPath(t)
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	second := perl(t, `open(A,'>>',$ARGV[0]); flock(A,LOCK_EX); print "ready\n"; open(B,'<',$ARGV[1]); sysread(B,$b,1); sleep 1000`, file, fifo)
	third := perl(t, `open(A,'>',$ARGV[0]); `+sleeps, fifo)
	third.stop(t)
	first := perl(t, waitsFor, file).asleep(t)
	second.asleep(t)
	want{pids: []int{first.pid, second.pid, third.pid}, kind: health.KindProcess, state: health.LinkStopped}.check(t, walked(t, first.pid))
}

func TestLoop(t *testing.T) {
	one, two := socketPath(t), socketPath(t)
	a, b := perl(t, locks, one, two), perl(t, locks, two, one)
	fmt.Fprintln(a.in)
	fmt.Fprintln(b.in)
	a.asleep(t)
	b.asleep(t)
	want{pids: []int{a.pid, b.pid}, kind: health.KindProcess, state: health.LinkLoop}.check(t, walked(t, a.pid))
}

func TestThreads(t *testing.T) {
	one, two := socketPath(t), socketPath(t)
	first := perl(t, holds, one).asleep(t)
	perl(t, holds, two)
	t.Run("one of them waits", func(t *testing.T) {
		p := program(t, "flocks", one).asleep(t)
		want{pids: []int{p.pid, first.pid}, kind: health.KindProcess, state: health.LinkAsleep}.check(t, walked(t, p.pid))
	})
	t.Run("two wait for the same", func(t *testing.T) {
		p := program(t, "flocks", one, one).asleep(t)
		want{pids: []int{p.pid, first.pid}, kind: health.KindProcess, state: health.LinkAsleep}.check(t, walked(t, p.pid))
	})
	t.Run("two wait for different ones", func(t *testing.T) {
		p := program(t, "flocks", one, two).asleep(t)
		want{pids: []int{p.pid}, kind: health.KindProcess, state: health.LinkUnknown, unknown: "2 different things"}.check(t, walked(t, p.pid))
	})
	t.Run("none waits for anybody", func(t *testing.T) {
		p := program(t, "deadlock").asleep(t)
		want{pids: []int{p.pid}, kind: health.KindProcess, state: health.LinkAsleep}.check(t, walked(t, p.pid))
	})
	t.Run("its peer does not read", func(t *testing.T) {
		path := socketPath(t)
		server := perl(t, listens+`accept(C,S); sleep 1000`, path)
		p := program(t, "dial", path).asleep(t)
		server.stop(t)
		want{pids: []int{p.pid, server.pid}, kind: health.KindProcess, state: health.LinkStopped}.check(t, walked(t, p.pid))
	})
}

func TestCPU(t *testing.T) {
	t.Run("runs", func(t *testing.T) {
		p := perl(t, `print "ready\n"; 1 while 1`)
		c := walked(t, p.pid)
		if c.Links[0].State == health.LinkStarved {
			t.Skip("SKIPPED: this machine has no CPU for it")
		}
		want{pids: []int{p.pid}, kind: health.KindProcess, state: health.LinkRunning}.check(t, c)
	})
	t.Run("is throttled", func(t *testing.T) {
		p := perl(t, `print "ready\n"; 1 while 1`)
		dir := cgroup(t, "cpu", p.pid)
		write(t, dir+"/cpu.cfs_period_us", "1000000")
		write(t, dir+"/cpu.cfs_quota_us", "1000")
		eventually(t, func() bool {
			b, _ := os.ReadFile(dir + "/cpu.stat")
			return !strings.Contains(string(b), "nr_throttled 0")
		})
		eventually(t, func() bool {
			c := walked(t, p.pid)
			last := c.Links[len(c.Links)-1]
			return last.Kind == health.KindCgroup && last.State == health.LinkThrottled && strings.HasSuffix(last.Name, filepath.Base(dir))
		})
	})
}

func TestMemoryLimit(t *testing.T) {
	p := perl(t, `print "ready\n"; $_=<STDIN>; $x = "x" x (200<<20); sleep 1000`)
	dir := cgroup(t, "memory", p.pid)
	write(t, dir+"/memory.limit_in_bytes", "33554432")
	write(t, dir+"/memory.oom_control", "1")
	fmt.Fprintln(p.in)
	eventually(t, func() bool { return strings.HasPrefix(state(p.pid), "D") })
	want{pids: []int{p.pid}, kind: health.KindCgroup, state: health.LinkMemory, name: filepath.Base(dir)}.check(t, walked(t, p.pid))
}

func TestVanishes(t *testing.T) {
	p := perl(t, sleeps)
	_ = unix.Kill(p.pid, unix.SIGKILL)
	eventually(t, func() bool { s := state(p.pid); return s == "" || strings.HasPrefix(s, "Z") })
	if c := walked(t, 1<<22-1); c.Unknown == "" || len(c.Links) != 0 {
		t.Error("a process that is not there")
	}
}

func TestHostileName(t *testing.T) {
	p := perl(t, `open(C,'>',"/proc/self/comm"); print C "a\x1b[31m)\nS 1"; close C; `+sleeps)
	p.stop(t)
	c := walked(t, p.pid)
	if len(c.Links) != 1 || strings.ContainsAny(c.Links[0].Name, "\x1b\n") || c.Links[0].State != health.LinkStopped {
		t.Errorf("%+v", c)
	}
}

// TestManyDescriptors: a peer with many descriptors is found, and in time.
func TestManyDescriptors(t *testing.T) {
	const opens = `open($f[$_],'<','/dev/null') or die for 1..8000; `
	path := socketPath(t)
	server := perl(t, listens+opens+`accept(C,S); print "accepted\n"; sleep 1000`, path)
	client := perl(t, connects+`print "ready\n"; sysread(S,$b,1)`, path).asleep(t)
	server.asleep(t)
	server.stop(t)
	began := time.Now()
	want{pids: []int{client.pid, server.pid}, kind: health.KindProcess, state: health.LinkStopped}.check(t, walked(t, client.pid))
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

func childOf(t *testing.T, pid int) (child int) {
	t.Helper()
	eventually(t, func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		child, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return child != 0
	})
	return child
}

// cgroup puts a process into a cgroup of v1 of its own.
func cgroup(t *testing.T, controller string, pid int) string {
	t.Helper()
	dir := filepath.Join("/sys/fs/cgroup", controller, fmt.Sprintf("plegd-chain-%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-")))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("SKIPPED: nothing here has been tested, there is no v1 %s: %v", controller, err)
	}
	t.Cleanup(func() {
		_ = unix.Kill(pid, unix.SIGKILL)
		if _, err := os.Stat(dir + "/freezer.state"); err == nil {
			_ = os.WriteFile(dir+"/freezer.state", []byte("THAWED"), 0o644)
		}
		eventually(t, func() bool { err := os.Remove(dir); return err == nil || os.IsNotExist(err) })
	})
	write(t, dir+"/cgroup.procs", strconv.Itoa(pid))
	return dir
}

func write(t *testing.T, file, value string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	b, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, b)
	}
	return strings.TrimSpace(string(b))
}

// loopMount mounts a small ext4 of a file.
func loopMount(t *testing.T) string {
	t.Helper()
	dir := filepath.Dir(socketPath(t))
	image, mount := filepath.Join(dir, "image"), filepath.Join(dir, "m")
	write(t, image, "")
	if err := os.Truncate(image, 16<<20); err != nil {
		t.Fatal(err)
	}
	run(t, "mkfs.ext4", "-q", "-F", image)
	if err := os.Mkdir(mount, 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, "mount", "-o", "loop", image, mount)
	t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
	return mount
}
