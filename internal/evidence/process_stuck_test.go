package evidence

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/must"
)

// TestAsleepLive asks the real kernel about threads of this process, in pairs: a write to
// a pipe or socket that nobody reads, and the same read from the other side.
func TestAsleepLive(t *testing.T) {
	pair := func(socket bool) (fds [2]int) {
		var err error
		if socket {
			fds, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		} else {
			err = unix.Pipe2(fds[:], unix.O_CLOEXEC)
		}
		must.Do(t, err)
		return fds
	}
	for name, tt := range map[string]struct{ socket, writes bool }{
		"write to a pipe": {false, true}, "read of a pipe": {false, false},
		"write to a socket": {true, true}, "read of a socket": {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			fds := pair(tt.socket)
			tids, done := make(chan int, 1), make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread()
				tids <- unix.Gettid()
				for b := make([]byte, 1<<16); ; {
					var err error
					if tt.writes {
						_, err = unix.Write(fds[1], b)
					} else {
						var n int
						if n, err = unix.Read(fds[0], b); n == 0 {
							return
						}
					}
					if err != nil && err != unix.EINTR {
						return
					}
				}
			}()
			tid := <-tids
			dir := fmt.Sprintf("/proc/%d/task", os.Getpid())
			if b, err := os.ReadFile(fmt.Sprintf("%s/%d/wchan", dir, tid)); err != nil || string(b) == "" {
				t.Skipf("SKIPPED: the kernel has no wait channels: %q, %v", b, err)
			}
			table := proc.NewTable("/proc")
			place := table.Place(os.Getpid(), tid)
			for deadline := time.Now().Add(30 * time.Second); place.Channel == "" || place.IsIdle() == tt.writes; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Errorf("it waits in %+v, which is idle: %t", place, place.IsIdle())
					break
				}
				place = table.Place(os.Getpid(), tid)
			}
			if tt.writes {
				_ = unix.Close(fds[0]) // EPIPE
			} else {
				_ = unix.Close(fds[1])
			}
			<-done
		})
	}
}
