package proc

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/test/must"
)

// TestSharedMappings: memory that is shared with a file is found by its address and has the file's path, with any name.
func TestSharedMappings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sem.a  b")
	must.Do(t, os.WriteFile(path, make([]byte, 8192), 0o600))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must.Do(t, err)
	defer func() { _ = f.Close() }()
	memory, err := unix.Mmap(int(f.Fd()), 4096, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must.Do(t, err)
	defer func() { _ = unix.Munmap(memory) }()
	all, err := NewTable("/proc").SharedMappings(os.Getpid())
	must.Do(t, err)
	address := uint64(uintptr(unsafe.Pointer(&memory[16])))
	i := slices.IndexFunc(all, func(m Mapping) bool { return m.Contains(address) })
	if i < 0 || all[i].Path != path || all[i].Offset != 4096 {
		t.Errorf("%d of %+v", i, all)
	}
}
