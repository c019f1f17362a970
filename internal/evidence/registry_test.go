package evidence

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// newThreadLimit is a source as CONTRIBUTING.md describes one: a constructor that
// returns a watch of a spec, with the place in the facts.
func newThreadLimit(root string) *Watch[health.Node] {
	return NewWatch(Spec[health.Node]{
		Name: "thread_limit", Period: 10 * time.Second, Timeout: time.Second,
		Fast: time.Second, Urgent: func(v *health.Node) bool { return v.ThreadsMax < 100 },
		Gather: func(context.Context) (*health.Node, error) {
			b, err := os.ReadFile(filepath.Join(root, "sys/kernel/threads-max"))
			if err != nil {
				return nil, err
			}
			n, err := strconv.Atoi(strings.TrimSpace(string(b)))
			return &health.Node{At: time.Now(), ThreadsMax: n}, err
		},
		Store: func(e *health.Evidence, v *health.Node) { e.Node = v },
	})
}

// TestAddSource adds a source by one line and finds its facts and its state.
func TestAddSource(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "sys/kernel/threads-max")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("90\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := &Registry{}
		w := newThreadLimit(root)
		w.spread, w.calm = exactly, exactly
		r.All = append(r.All, w)
		if e := r.Facts(); e.Node != nil || len(e.Sources) != 0 {
			t.Errorf("before it was asked: %+v", e)
		}
		stop := runWatch(t, w)
		later(100 * time.Millisecond)
		if e := r.Facts(); e.Node == nil || e.Node.ThreadsMax != 90 || !e.Sources["thread_limit"].Up {
			t.Errorf("%+v, %+v", e.Node, e.Sources)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		later(time.Second) // the fast period
		e := r.Facts()
		if s := e.Sources["thread_limit"]; s.Up || !s.Kept || !strings.Contains(s.Err, "threads-max") {
			t.Errorf("one sample was missed: %+v", s)
		}
		later(time.Second)
		if e := r.Facts(); e.Node != nil {
			t.Errorf("two samples were missed: %+v", e.Node)
		}
		stop()
	})
}

// TestRegistryNames: each source has a name of its own.
func TestRegistryNames(t *testing.T) {
	none := func() string { return "" }
	r, err := NewRegistry(Options{
		ProcFS: "/proc", SysFS: "/sys", Path: none, HeldPeer: func() int { return 0 }, NewestPeer: func() (int, time.Time) { return 0, time.Time{} },
		Moved: func() {}, BehindDocker: func() bool { return false }, Kubelet: KubeletOptions{HealthzURL: DefaultKubeletHealthz},
	})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, s := range r.All {
		if names[s.String()] {
			t.Errorf("two sources are named %s", s)
		}
		names[s.String()] = true
	}
	if len(names) != 12 || r.PID() != 0 {
		t.Errorf("%d sources, pid %d", len(names), r.PID())
	}
	if _, err := NewRegistry(Options{ProcFS: "/proc", SysFS: "/sys", Kubelet: KubeletOptions{HealthzURL: "nonsense"}}); err == nil {
		t.Error("a wrong URL is accepted")
	}
}
