package evidence

import (
	"slices"
	"testing"

	"github.com/plegd/plegd/internal/evidence/evidencetest"
)

// TestKubeletProcessFind: a process is looked at in its first two searches, since it may
// be given its name a moment after its start, and after that in one of searchesKept: its
// pid may be a kubelet's meanwhile.
func TestKubeletProcessFind(t *testing.T) {
	root := t.TempDir()
	k := &kubeletProcess{procFS: root}
	name := func(pid, comm string) {
		evidencetest.WriteTree(t, root, map[string]string{pid + "/comm": comm + "\n", pid + "/cgroup": "0::/system.slice/x.service\n"})
	}
	find := func(want ...int) {
		t.Helper()
		if got, err := k.find(); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%v, %v; want %v", got, err, want)
		}
	}
	name("100", "bash")
	find()
	name("100", "kubelet")
	find(100)
	name("100", "bash")
	find()
	find()
	find()
	name("100", "kubelet")
	for range searchesKept {
		if got, err := k.find(); err != nil {
			t.Fatal(err)
		} else if len(got) == 1 {
			return
		}
	}
	t.Errorf("not found in %d searches", searchesKept)
}
