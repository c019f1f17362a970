package incident

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// childEnv makes the test binary a plegd that only keeps incidents, in the
// directory that it names.
const childEnv = "PLEGD_TEST_INCIDENTS"

// kills: go test ./internal/incident -run TestKilled -kills 500.
var kills = flag.Int("kills", 20, "how often TestKilled kills plegd")

// childLimits let incidents come and go fast, and the oldest go as well.
func childLimits() Limits {
	l := DefaultLimits()
	l.Number, l.Burst, l.WriteBurst, l.WriteEvery, l.Every = 40, 1<<30, 1<<30, time.Nanosecond, time.Nanosecond
	return l
}

// runChild opens, changes and closes incidents as fast as the disk goes, and
// says on its standard output what is stored and what is about to go, until it
// is killed or its standard input ends.
func runChild(dir string) {
	out := func(format string, args ...any) { _, _ = fmt.Fprintf(os.Stdout, format, args...) }
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		panic(err)
	}
	began := time.Now()
	changed := make(chan struct{}, 1)
	r := New(Options{
		Dir: dir, BootID: func() (string, error) { return strings.TrimSpace(string(boot)), nil },
		Monotonic: func() time.Duration { return time.Since(began) + time.Duration(began.UnixNano()) }, // it continues over the children
		Limits:    childLimits(),
		stored: func(one *Incident) {
			out("stored %s %d %s\n", one.ID, one.Revision, one.Outcome)
			select {
			case changed <- struct{}{}:
			default:
			}
		},
		removing: func(id string) { out("removing %s\n", id) },
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		cancel()
	}()
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	last := &health.Verdict{State: health.StateHealthy}
	for ctx.Err() == nil {
		v := &health.Verdict{State: health.StateDegraded, Active: []health.Active{{ID: fmt.Sprint(rand.N(1000)), Evidence: []string{strings.Repeat("e", rand.N(2000))}}}}
		v.Reason = v.Active[0].ID
		if rand.N(6) == 0 {
			v = &health.Verdict{State: health.StateHealthy}
		}
		r.Judged(snapshot(&health.Facts{}, last, v))
		last = v
		select { // until something is stored, or not quite
		case <-changed:
		case <-time.After(rand.N(5 * time.Millisecond)):
		}
	}
	<-ended
}

// child starts one and returns its lines. It ends by itself when its standard
// input is closed.
func child(t *testing.T, dir string, wrap ...string) (*exec.Cmd, io.Closer, *bufio.Scanner) {
	t.Helper()
	argv := append(slices.Clone(wrap), os.Args[0])
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, in, bufio.NewScanner(out)
}

// TestKilled kills plegd by SIGKILL at random moments while incidents open,
// change and close on a real file system: what was reported as stored is there
// and whole, nothing is half, and an open one continues.
func TestKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts processes")
	}
	dir := filepath.Join(t.TempDir(), "incidents")
	promised := map[string]int{} // id: the last revision that was reported as stored
	removed := map[string]bool{} // said to go
	reports, resumedOnes := 0, 0
	open := "" // after the last kill
	for round := range *kills {
		cmd, _, lines := child(t, dir)
		after := rand.N(30)
		var timer *time.Timer
		first := true
		for lines.Scan() {
			var id, outcome string
			var revision int
			line := lines.Text()
			if _, err := fmt.Sscanf(line, "removing %s", &id); err == nil {
				removed[id] = true
				delete(promised, id)
				continue
			}
			if _, err := fmt.Sscanf(line, "stored %s %d %s", &id, &revision, &outcome); err != nil {
				t.Fatalf("round %d: the child says %q", round, line)
			}
			reports++
			if revision <= promised[id] {
				t.Fatalf("round %d: %s went from revision %d to %d", round, id, promised[id], revision)
			}
			if first && id == open {
				resumedOnes++
			}
			first = false
			promised[id] = revision
			if after--; after <= 0 && timer == nil {
				// A moment that has nothing to do with a line.
				timer = time.AfterFunc(rand.N(3*time.Millisecond), func() { _ = cmd.Process.Kill() })
			}
		}
		_ = cmd.Wait()
		open = checkStored(t, round, dir, promised, removed)
	}
	t.Logf("killed %d times: %d versions reported as stored, of %d incidents, %d removed by the bound; %d went on after a kill; none lost, none half",
		*kills, reports, len(promised)+len(removed), len(removed), resumedOnes)
	if reports < *kills || *kills >= 100 && resumedOnes == 0 {
		t.Errorf("only %d reports and %d that went on: this proves nothing", reports, resumedOnes)
	}
}

// checkStored reads every file, and returns the id of the open one.
func checkStored(t *testing.T, round int, dir string, promised map[string]int, removed map[string]bool) (open string) {
	t.Helper()
	f := &files{dir: dir, fs: osFS{}}
	ids, err := f.names()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, id := range ids {
		one, _, err := f.read(id)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		head, _, err := f.head(id)
		if err != nil || head.Revision != one.Revision {
			t.Fatalf("round %d: the head of %s: %v", round, id, err)
		}
		if one.Revision < promised[id] {
			t.Fatalf("round %d: %s is at revision %d, %d was reported as stored", round, id, one.Revision, promised[id])
		}
		if len(one.Timeline) == 0 {
			t.Fatalf("round %d: %s has no timeline", round, id)
		}
		found[id] = true
		if one.Outcome == Open {
			open = id
		}
	}
	for id := range promised {
		if !found[id] {
			t.Fatalf("round %d: %s was reported as stored and is gone", round, id)
		}
	}
	if most := childLimits().Number + 1; len(ids) > most {
		t.Fatalf("round %d: %d files, want at most %d", round, len(ids), most)
	}
	return open
}
