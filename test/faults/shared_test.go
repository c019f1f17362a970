//go:build e2e

package faults

import (
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/test/lab"
)

// sharedEnv is set for a process of a fault that shares memory with the file of its first argument. With a second one it
// waits there for another process.
const sharedEnv = "PLEGD_FAULTS_SHARED"

var _ = lab.AddRole(sharedEnv, shareMemory)

func shareMemory() int {
	f, err := os.OpenFile(os.Args[1], os.O_RDWR, 0)
	if err != nil {
		return 1
	}
	memory, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return 1
	}
	fmt.Println("ready")
	for len(os.Args) > 2 { // FUTEX_WAIT, until a signal comes
		_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&memory[0])), 0, 0, 0, 0, 0)
	}
	time.Sleep(time.Hour)
	return 0
}
