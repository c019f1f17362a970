package evidence

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestActivity(t *testing.T) {
	root := t.TempDir()
	w := NewActivity(root)
	look := func(stat string) (*Activity, error) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, "stat"), []byte(stat), 0o600); err != nil {
			t.Fatal(err)
		}
		return w.spec.Gather(t.Context())
	}
	if a, err := look("cpu  1 2 3\nintr 9 9\nctxt 98765432101\nbtime 1\n"); err != nil || a.Switches != 98765432101 || a.Rate != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	for _, bad := range []string{"", "cpu 1\n", "ctxt\n", "ctxt many\n"} {
		if a, err := look(bad); err == nil {
			t.Errorf("%q: %+v, want an error", bad, a)
		}
	}
}

// TestUsualRate: the time of a pause does not change what is usual.
func TestUsualRate(t *testing.T) {
	at := time.Now()
	a := Activity{}.next(at, 1000)
	a = a.next(at.Add(2*time.Second), 3000)
	if a.Rate != 1000 {
		t.Fatalf("rate %g, want 1000", a.Rate)
	}
	a = a.next(at.Add(4*time.Second), 9000)
	if a.Rate != 1500 {
		t.Errorf("rate %g, want 1500: a quarter of the new one", a.Rate)
	}
	if a = a.next(at.Add(64*time.Second), 9010); a.Rate != 1500 {
		t.Errorf("rate %g after a pause, want what it was", a.Rate)
	}
	if a = a.next(at.Add(66*time.Second), 10); a.Rate != 1500 {
		t.Errorf("rate %g after a counter that went back, want what it was", a.Rate)
	}
}
