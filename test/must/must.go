// Package must ends a test at an error or at a wrong value.
package must

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plegd/plegd/test/check"
)

// Do ends the test at an error.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Start starts a program with its input and output, and kills it when the test ends.
func Start(t testing.TB, cmd *exec.Cmd) (in io.WriteCloser, out io.Reader) {
	t.Helper()
	in, err := cmd.StdinPipe()
	Do(t, err)
	out, err = cmd.StdoutPipe()
	Do(t, err)
	Do(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return in, out
}

// Eventually waits until a condition holds, and ends the test where it does not within limit.
func Eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

var addresses atomic.Int32

// FreeAddress returns an address on the loopback network that no other process uses: its host is made
// of the test's pid, since a port that was free a moment ago may be taken.
func FreeAddress(t testing.TB) string {
	t.Helper()
	const hosts = 1 << 22 // the largest pid
	host := os.Getpid() % hosts
	return fmt.Sprintf("127.%d.%d.%d:%d", 64+host>>16, host>>8&0xff, host&0xff, 18000+addresses.Add(1))
}

// Equal ends the test unless got equals want.
func Equal[T comparable](t testing.TB, got, want T, format string, args ...any) {
	t.Helper()
	if !check.Equal(t, got, want, format, args...) {
		t.FailNow()
	}
}
