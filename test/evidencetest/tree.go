package evidencetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plegd/plegd/test/must"
)

// StatLine makes a line of /proc/PID/stat.
func StatLine(pid int, comm string, state byte, ppid int, start uint64) string {
	return fmt.Sprintf("%d (%s) %c %d 1 1 0 -1 4194304 104 0 0 0 0 0 0 0 20 0 1 0 "+
		"%d 3133440 418 18446744073709551615 0 0\n", pid, comm, state, ppid, start)
}

// RootStatus is the /proc/PID/status of a process of root's in the node's pid namespace.
const RootStatus = "Uid:\t0\t0\t0\t0\nNSpid:\t7\n"

// WriteTree writes files below dir, by their paths. A process whose PID/stat is written is root's
// unless its status says otherwise.
func WriteTree(tb testing.TB, dir string, files map[string]string) {
	tb.Helper()
	for name, content := range files {
		write(tb, filepath.Join(dir, name), content)
		pid, isStat := strings.CutSuffix(name, "/stat")
		status := pid + "/status"
		if _, given := files[status]; isStat && !given && !strings.Contains(pid, "/") {
			write(tb, filepath.Join(dir, status), RootStatus)
		}
	}
}

func write(tb testing.TB, path, content string) {
	tb.Helper()
	must.Do(tb, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Do(tb, os.WriteFile(path, []byte(content), 0o644))
}

// CopyTree returns a copy of a fixture tree that a test may change.
func CopyTree(tb testing.TB, dir string) string {
	tb.Helper()
	out := tb.TempDir()
	must.Do(tb, os.CopyFS(out, os.DirFS(dir)))
	return out
}

// Locks is a /proc/locks with locks of each kind, some of them with waiters.
const Locks = `1: POSIX  ADVISORY  WRITE 900 fe:00:77 0 EOF
2: FLOCK  ADVISORY  WRITE 2000 fe:00:5678 0 EOF
2: -> FLOCK  ADVISORY  WRITE 1000 fe:00:5678 0 EOF
2:  -> FLOCK  ADVISORY  WRITE 1500 fe:00:5678 0 EOF
3: OFDLCK ADVISORY  READ -1 fe:00:99 0 EOF
3: -> OFDLCK ADVISORY  WRITE -1 fe:00:99 0 EOF
3: -> POSIX  ADVISORY  WRITE 1600 fe:00:99 0 EOF
4: LEASE  ACTIVE    READ 1700 fe:00:12 0 EOF
`
