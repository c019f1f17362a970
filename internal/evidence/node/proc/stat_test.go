package proc

import (
	"bytes"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/evidence/evidencetest"
	"github.com/plegd/plegd/internal/fuzzcorpus"
)

func TestParseStat(t *testing.T) {
	for _, comm := range []string{"", "containerd", "tmux: server", "a) S 1 (b", ")", "((", "new\nline) R 7", "(sd-pam)"} {
		got, err := ParseStat([]byte(evidencetest.StatLine(4242, comm, 'D', 7, 1234)))
		if want := (Stat{PID: 4242, PPID: 7, Comm: comm, State: 'D', Threads: 1, Start: 1234}); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", comm, got, err, want)
		}
	}
	whole := strings.TrimSuffix(evidencetest.StatLine(1, "x", 'S', 1, 1), "\n")
	for _, line := range []string{
		"", "()", "(x) S", "1 (x", "1 x) S", ") 1 (x", "1 (x) SS" + strings.Repeat(" 1", 30), "x (x) S" + strings.Repeat(" 1", 30),
		"1 (x) S" + strings.Repeat(" 1", 18), "1 (x) S x" + strings.Repeat(" 1", 30), "1 (x) S" + strings.Repeat(" -1", 30),
		"-1" + whole[1:], "0" + whole[1:],
	} {
		if got, err := ParseStat([]byte(line)); err == nil {
			t.Errorf("%q: %+v, want an error", line, got)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	fuzzcorpus.Add(f)
	for _, comm := range []string{"containerd", "tmux: server", "a) S 1 (b", "new\nline"} {
		f.Add([]byte(evidencetest.StatLine(4242, comm, 'S', 1, 99)))
	}
	f.Add([]byte("1 (x) S"))
	f.Add([]byte(")("))
	f.Add([]byte("1 () \x00 0                0  0"))
	f.Fuzz(func(t *testing.T, line []byte) {
		s, err := ParseStat(line)
		if err != nil {
			if s != (Stat{}) {
				t.Errorf("%+v with an error", s)
			}
			return
		}
		if s.PID <= 0 || s.PPID < 0 || s.State == 0 || !bytes.Contains(line, []byte("("+s.Comm+")")) {
			t.Errorf("%+v of %q", s, line)
		}
	})
}

// TestStartedAt: the age of a process is what counts, whatever the wall clock
// said when it was started.
func TestStartedAt(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		up    time.Duration
		ticks uint64
		age   time.Duration
	}{
		{up: time.Hour, ticks: 0, age: time.Hour},
		{up: time.Hour, ticks: 360000 - 250, age: 2500 * time.Millisecond},
		{up: time.Hour, ticks: 360001, age: 0},
		{up: time.Hour, ticks: math.MaxUint64, age: 0},
	} {
		if got := now.Sub(StartedAt(now, tt.up, tt.ticks)); got != tt.age {
			t.Errorf("%s after boot, started at tick %d: %s old, want %s", tt.up, tt.ticks, got, tt.age)
		}
	}
	// Live: this process is younger than the system, and not by nothing.
	s, err := ReadStat("/proc", os.Getpid())
	if err != nil || s.PID != os.Getpid() || s.PPID != os.Getppid() || s.Threads < 2 || s.Dead() {
		t.Fatalf("%+v, %v", s, err)
	}
	if age := time.Since(StartedAt(time.Now(), Uptime(), s.Start)); age <= 0 || age > time.Hour {
		t.Errorf("this process is %s old", age)
	}
}

// TestDead: the first thread may end before the others.
func TestDead(t *testing.T) {
	for _, tt := range []struct {
		state   byte
		threads int
		want    bool
	}{{'S', 1, false}, {'Z', 1, true}, {'Z', 0, true}, {'Z', 2, false}, {'X', 1, true}, {'D', 1, false}} {
		if s := (Stat{State: tt.state, Threads: tt.threads}); s.Dead() != tt.want {
			t.Errorf("%c with %d threads: dead %v", tt.state, tt.threads, s.Dead())
		}
	}
}
