package daemon

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/fuzzcorpus"
)

// FuzzStateFile reads any file in the place of the state: the result lies in the past
// of this boot, or is empty.
func FuzzStateFile(f *testing.F) {
	fuzzcorpus.Add(f)
	f.Add([]byte(`{"schema":1,"boot_id":"first","written_monotonic_ns":3599000000000,"last_seen_monotonic_ns":3590000000000,"last_good_status_monotonic_ns":3595000000000,"status_answered":true,"runtime_ready":{"status":true},"network_ready":{"status":false,"reason":"R","message":"M"}}`))
	f.Add([]byte(`{"schema":1,"boot_id":"first","written_monotonic_ns":-9223372036854775808,"last_seen_monotonic_ns":9223372036854775807}`))
	f.Add([]byte(`{"schema":1,"boot_id":"first","written_monotonic_ns":-9223372036854775808,"last_seen_monotonic_ns":1}`))
	f.Add([]byte(`[{}]`))
	f.Add([]byte{})
	root := f.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "sys/kernel/random"), 0o700); err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "sys/kernel/random/boot_id"), []byte("first\n"), 0o600); err != nil {
		f.Fatal(err)
	}
	s := newStore(root, root, zap.NewNop())
	s.clock = func() time.Duration { return time.Hour }
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(filepath.Join(root, stateFile), b, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := s.read()
		now := time.Now()
		if err != nil && (!r.lastSeen.IsZero() || r.gap != 0) {
			t.Errorf("%q: %v, and yet %+v", b, err, r)
		}
		for _, at := range []time.Time{r.lastSeen, r.status.LastGood} {
			if !at.IsZero() && (at.After(now) || now.Sub(at) > time.Hour+time.Minute) {
				t.Errorf("%q: %s is no moment of this boot", b, at)
			}
		}
		if r.gap < 0 || r.gap > time.Hour {
			t.Errorf("%q: nobody watched for %s", b, r.gap)
		}
	})
}
