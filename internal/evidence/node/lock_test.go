package node

import (
	"bytes"
	"testing"

	"github.com/plegd/plegd/test/evidencetest"
)

func TestLockWaits(t *testing.T) {
	tests := []struct {
		name, locks string
		pid, holder int
		file        string
	}{
		{"waits", evidencetest.Locks, 1000, 2000, "fe:00:5678"},
		{"waits behind another", evidencetest.Locks, 1500, 2000, "fe:00:5678"},
		{"holds", evidencetest.Locks, 2000, 0, ""},
		{"has nothing to do with any", evidencetest.Locks, 1, 0, ""},
		{"an open file description holds it, which has no process", evidencetest.Locks, 1600, 0, "fe:00:99"},
		{"the holder's line is unreadable", "1: FLOCK  ADVISORY  WRITE 5 a:1:1 0 EOF\n2: FLOCK\n2: -> FLOCK  ADVISORY  WRITE 6 a:1:2 0 EOF\n", 6, 0, "a:1:2"},
		{"no holder's line", "2: -> FLOCK  ADVISORY  WRITE 6 a:1:2 0 EOF", 6, 0, "a:1:2"},
		{"empty", "", 6, 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			holder, file, ok := firstWait(LockWaits([]byte(tt.locks), tt.pid))
			if holder != tt.holder || file != tt.file || ok != (tt.file != "") {
				t.Errorf("%d, %q, %v; want %d, %q", holder, file, ok, tt.holder, tt.file)
			}
		})
	}
}

// firstWait is the first of the locks that are waited for.
func firstWait(waits []Lock) (holder int, file string, ok bool) {
	if len(waits) == 0 {
		return 0, "", false
	}
	return waits[0].PID, waits[0].File, true
}

func FuzzLockWaits(f *testing.F) {
	for _, pid := range []int{1000, 1600, 0, -1} {
		f.Add([]byte(evidencetest.Locks), pid)
	}
	f.Add([]byte("1: ->"), 1)
	f.Add([]byte("->\n-> -> ->"), 1)
	f.Fuzz(func(t *testing.T, locks []byte, pid int) {
		for _, l := range LockWaits(locks, pid) {
			if l.PID < 0 || l.PID == pid && pid != 0 || l.File == "" || !bytes.Contains(locks, []byte(l.File)) {
				t.Errorf("%+v of %q", l, locks)
			}
		}
	})
}
