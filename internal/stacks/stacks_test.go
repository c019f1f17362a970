package stacks

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// readDump parses a file of testdata.
func readDump(t *testing.T, name string) *Dump {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	must.Do(t, err)
	d, err := Parse(text)
	must.Do(t, err)
	return d
}

// TestDumps analyses real dumps whose holders are known from how they were made.
func TestDumps(t *testing.T) {
	for _, tt := range []struct {
		file   string
		holder int // 0: none is proven
		says   []string
	}{
		{"containerd-1.6-list-hangs.txt", 346, []string{
			"2 wait for the lock of container.(*statusStorage), the longest for less than 1 min: ListContainers x2",
			"held by goroutine 346: UpdateContainerResources for less than 1 min, waits for its call to a shim (Update)",
		}},
		{"containerd-1.6-frozen-root.txt", 10, []string{
			"3 wait for the lock of metadata.(*DB), the longest for less than 1 min: RunPodSandbox x3",
			"held by goroutine 10: metadata.(*DB).GarbageCollect for less than 1 min, in the system call pwrite in bbolt.(*Tx).write",
		}},
		{"containerd-1.6-shim-stopped.txt", 0, []string{
			"StopContainer for less than 1 min, waits for its call to a shim (Kill)", "0 contended locks",
		}},
		{"dockerd-20.10-stop.txt", 0, []string{
			"postContainersStop for less than 1 min, waits for its call to containerd (Kill)", "holder not proven",
		}},
		{"crio-log-pipe.txt", 581, []string{
			"held by goroutine 581: Status for 1 min, in the system call write in logrus.(*Entry).write",
			"ListPodSandbox for 1 min, waits for a lock in logrus.(*Entry).log, held by Status",
		}},
		{"crio-nri-stopped.txt", 0, []string{"RunPodSandbox for less than 1 min, waits for an NRI plugin (RunPodSandbox)", "0 contended locks"}},
		{"dockerd-cp.txt", 0, []string{"holder not proven", "getContainersArchive for less than 1 min, waits for its client to read"}},
		{"containerd-1.6-shim-in-update.txt", 406, []string{
			"2 wait for the lock of container.(*statusStorage), the longest for less than 1 min: ContainerStatus x1, ListContainers x1",
		}},
		{"containerd-1.6-frozen-disk.txt", 0, []string{
			"2 wait for the lock of bbolt.(*DB)", "RunPodSandbox for less than 1 min, in the system call pwrite in bbolt.(*Tx).write",
		}},
		{"containerd-2.4-update-hangs.txt", 470, []string{
			"UpdateContainerResources for less than 1 min, waits for the lock of container.(*statusStorage), held by UpdateContainerResources",
		}},
		{"containerd-2.4-cni-reload.txt", 0, []string{"Status for less than 1 min, waits for the lock of go-cni.(*libcni)", "may belong to anything"}},
		{"crio-frozen-root.txt", 153, []string{
			"holder not proven: no goroutine shows", "it alone is in lockfile.(*LockFile).RecordWrite with the same value 0x1dcace1d8240",
		}},
		{"crio-storage-lock.txt", 0, []string{"RunPodSandbox for less than 1 min, in the system call fcntlflock in rawfilelock.lockHandle"}},
		{"crio-kill-hangs.txt", 0, []string{"2 wait for the lock of oci.(*Container)", "may belong to anything"}},
		{"crio-update-hangs.txt", 0, []string{
			"3 goroutines may hold it", "UpdateContainerResources for less than 1 min, waits for a program that it has started",
		}},
		{"crio-cni-hangs.txt", 0, []string{"RunPodSandbox for less than 1 min, waits for a CNI plugin (addNetwork)"}},
		{"dockerd-26.1-create-hangs.txt", 0, []string{"postContainersStart for less than 1 min, waits for its call to containerd (Create)"}},
		{"dockerd-26.1-delete-hangs.txt", 0, []string{"3 wait for a lock in container.(*State).GetPID, the longest for less than 1 min: deleteContainers x1"}},
		{"dockerd-26.1-shim-stopped.txt", 0, []string{"5 wait for a lock in container.(*State).IsRunning", "waits for its call to containerd (Kill)"}},
		{"dockerd-26.1-authorization.txt", 0, []string{"AuthZRequest for 1 min, waits for a plugin of dockerd"}},
		{"dockerd-26.1-frozen-root.txt", 0, []string{"postContainersCreate for less than 1 min, in the system call mkdirat in idtools"}},
		{"containerd-1.7-shim-stopped.txt", 0, []string{"Tasks.Kill for less than 1 min, waits for its call to a shim (Kill)"}},
	} {
		t.Run(tt.file, func(t *testing.T) {
			r := Analyse(readDump(t, tt.file))
			holder := 0
			for _, l := range r.Locks {
				if l.Holder != nil {
					holder = l.Holder.Goroutine
				}
			}
			var text strings.Builder
			must.Do(t, r.WriteText(&text))
			check.Equal(t, holder, tt.holder, "holder")
			for _, want := range tt.says {
				check.Contains(t, text.String(), want, "%s lacks", &text)
			}
		})
	}
}

// TestParse: a dump in each form that a runtime or a log gives it.
func TestParse(t *testing.T) {
	const one = "goroutine 7 [sync.Mutex.Lock, 12 minutes, locked to thread]:\nsync.(*Mutex).Lock(...)\n\t/usr/local/go/src/sync/mutex.go:46\n" +
		"a/b.(*T).Get(0xc000123450?, {0x1, _}, ...)\n\t/src/a b/t.go:12 +0x28e\ncreated by a/b.New in goroutine 3\n\t/src/t.go:4 +0x1\n"
	lines := strings.Split(strings.TrimSpace(one), "\n")
	prefixed := "noise\nNov 27 22:00:00 n containerd[1]: " + strings.Join(lines, "\nNov 27 22:00:00 n containerd[1]: ")
	for name, text := range map[string]string{
		"pprof":        one,
		"panic":        "panic: x\n\n" + strings.Replace(one, "goroutine 7 [", "goroutine 7 gp=0xc01 m=3 mp=0xc02 [", 1),
		"Windows":      strings.ReplaceAll(one, "\n", "\r\n"),
		"journal":      prefixed,
		"a log line":   `time="x" level=info msg="=== BEGIN goroutine stack dump ===\n` + strings.ReplaceAll(strings.ReplaceAll(one, "\t", `\t`), "\n", `\n`) + `\n=== END"`,
		"tabs as text": strings.ReplaceAll(one, "\t", "    "),
	} {
		d, err := Parse([]byte(text))
		if err != nil || len(d.Goroutines) != 1 || d.Truncated {
			t.Errorf("%s: %v, %+v", name, err, d)
			continue
		}
		g := d.Goroutines[0]
		if g.ID != 7 || g.State != "sync.Mutex.Lock" || g.Waited != 12*time.Minute || g.Creator != 3 || g.CreatedBy != "a/b.New" || len(g.Frames) != 2 {
			t.Errorf("%s: %+v", name, g)
			continue
		}
		f := g.Frames[1]
		if f.Receiver() != "a/b.(*T)" || f.Package() != "a/b" || f.Offset != 0x28e || !f.Hidden || !f.hasWord(0xc000123450, true) || f.hasWord(0xc000123450, false) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]error{
		"": ErrNotDump, "\x7fELF\x00": ErrNotDump, "created by x in goroutine 3\n": ErrNotDump,
		"goroutine profile: total 98\n1 @ 0x1 0x2\n": ErrCounted,
	} {
		if _, err := Parse([]byte(text)); !errors.Is(err, want) {
			t.Errorf("%.20q: %v, want %v", text, err, want)
		}
	}
	long := strings.Repeat("goroutine 1 [select]:\nx.y()\n\t/z.go:1\n\n", MaxBytes/30)
	d, err := Parse([]byte(long))
	if err != nil || !d.Truncated {
		t.Errorf("a long dump: %v, truncated %v", err, d.Truncated)
	}
}

// TestManyLocks: a dump of the largest size with a lock for each goroutine is analysed in time
// that grows with its size alone; most locks are only counted.
func TestManyLocks(t *testing.T) {
	const limit = 20 * time.Second // of CPU time; a quadratic analysis takes minutes
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	var b strings.Builder
	n := 0
	for b.Len() < MaxBytes-200 {
		n++
		fmt.Fprintf(&b, "goroutine %d [sync.Mutex.Lock]:\nsync.(*Mutex).lockSlow(0xc%08x)\n\t/m.go:1 +0x1\n"+
			"a/b.(*T).f(0xc%08x)\n\t/t.go:1 +0x1\ncreated by x in goroutine %d\n\t/y.go:1 +0x1\n\n", n, n*64, n*64, n-1)
	}
	begun := threadTime(t)
	d, err := Parse([]byte(b.String()))
	must.Do(t, err)
	r := Analyse(d)
	if took := threadTime(t) - begun; took > limit || len(r.Locks) != maxLocks || r.MoreLocks != n-maxLocks {
		t.Errorf("%s for %d goroutines, %d locks and %d more", took, n, len(r.Locks), r.MoreLocks)
	}
}

// threadTime returns the CPU time of this thread, to which the load of the machine adds nothing.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var usage unix.Rusage
	must.Do(t, unix.Getrusage(unix.RUSAGE_THREAD, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// FuzzAnalyse: no text makes the analysis fail, name a holder that waits for its own lock or
// print what a terminal takes for a command.
func FuzzAnalyse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txt")
	must.Do(f, err)
	for _, name := range files {
		text, err := os.ReadFile(name)
		must.Do(f, err)
		f.Add(text)
	}
	f.Add([]byte("goroutine 99999999999999999999 [semacquire, 99999999999999999999 minutes]:\nsync.(*Mutex).Lock(0xffffffffffffffffff)\na.(*(b)\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := Parse(text)
		if err != nil {
			return
		}
		r := Analyse(d)
		var out strings.Builder
		must.Do(t, r.WriteText(&out))
		if !utf8.ValidString(out.String()) || strings.ContainsAny(out.String(), "\x1b\x00\r") {
			t.Errorf("%q", out.String())
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
		for i, l := range d.groups() {
			if i >= len(r.Locks) || r.Locks[i].Holder == nil {
				continue
			}
			id := r.Locks[i].Holder.Goroutine
			if slices.ContainsFunc(l.waiters, func(w lockWait) bool { return w.goroutine.ID == id }) {
				t.Errorf("goroutine %d waits for the lock that it holds", id)
			}
		}
	})
}

// callChain is the chain of a call, with a link behind it.
func callChain(operation string) facts.Chain {
	return facts.Chain{Links: []facts.Link{
		{Kind: facts.KindCall, Name: operation, State: facts.LinkUnanswered, Evidence: "unanswered for 9s"},
		{Kind: facts.KindShim, Name: "containerd-shim", PID: 4711, State: facts.LinkStopped},
	}}
}

// TestComplete: the call gets its wait, and the holder comes behind it only where it is proven.
func TestComplete(t *testing.T) {
	for name, tt := range map[string]struct {
		dump, operation string
		evidence        string // a part of the call's
		holder          string // the name of the link behind it, "" for none
	}{
		"a lock":                {"containerd-1.6-list-hangs.txt", "list_containers", "waits for the lock of container.(*statusStorage)", "UpdateContainerResources"},
		"every call":            {"containerd-1.6-list-hangs.txt", facts.EveryCall, "waits for the lock of container.(*statusStorage)", "UpdateContainerResources"},
		"another call":          {"containerd-1.6-list-hangs.txt", "version", "unanswered for 9s", ""},
		"the log":               {"crio-log-pipe.txt", "version", "waits for a lock in logrus.(*Entry).log", "Status"},
		"the holder's own call": {"crio-nri-stopped.txt", "list_containers", "unanswered for 9s", ""},
		"an unknown holder":     {"dockerd-cp.txt", facts.EveryCall, "whose holder is not proven", ""},
	} {
		before := callChain(tt.operation)
		got := Analyse(readDump(t, tt.dump)).complete(before, time.Unix(600, 0))
		holder := ""
		if len(got.Links) == 3 {
			holder = got.Links[1].Name
		}
		if !strings.Contains(got.Links[0].Evidence, tt.evidence) || holder != tt.holder || got.Links[len(got.Links)-1].PID != 4711 {
			t.Errorf("%s: %+v", name, got.Links)
		}
		check.Equal(t, before.Links[0].Evidence, "unanswered for 9s", "%s: the chain of the explorer has changed", name)
	}
}

// TestInsideReadsRarely: a dump is read once in 30 s, for calls that hang, and one of the
// fault before is not used.
func TestInsideReadsRarely(t *testing.T) {
	pid, _ := start(t, "containerd", "debug.sock")
	s := &Inside{Reader: Reader{Table: proc.NewTable("/proc")}}
	targets := []Target{{PID: pid}}
	hung := facts.Symptom{Operation: "list_containers", Since: time.Now().Add(-time.Minute), Called: time.Now().Add(-time.Minute)}
	for name, tt := range map[string]facts.Symptom{
		"young":     {Operation: "list_containers", Since: time.Now(), Called: time.Now()},
		"suspected": {Operation: "list_containers", Since: hung.Since, Called: hung.Called, Suspected: true},
	} {
		s.Complete(t.Context(), callChain("list_containers"), tt, targets)
		if !s.read.IsZero() {
			t.Errorf("%s: a dump was read", name)
		}
	}
	s.Complete(t.Context(), callChain("list_containers"), hung, targets)
	first := s.read
	if s.report == nil || first.IsZero() {
		t.Fatal("no dump was read")
	}
	s.Complete(t.Context(), callChain("list_containers"), hung, targets)
	next := hung
	next.Since = time.Now().Add(-10 * time.Second)
	s.Complete(t.Context(), callChain("list_containers"), next, targets)
	if !s.read.Equal(first) || s.report != nil {
		t.Errorf("within 30 s: read again %v, the report of another fault is kept %v", !s.read.Equal(first), s.report != nil)
	}
}
