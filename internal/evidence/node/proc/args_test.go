package proc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/evidencetest"
)

func FuzzArgs(f *testing.F) {
	f.Add([]byte("/usr/bin/containerd-shim-runc-v2\x00-namespace\x00k8s.io\x00-id\x00abc\x00-address\x00/run/containerd/containerd.sock\x00"), "address")
	f.Add([]byte("a\x00--id=x\x00-id"), "id")
	f.Add([]byte("\x00\x00"), "")
	f.Fuzz(func(t *testing.T, b []byte, name string) {
		args := SplitArgs(b)
		if v := ArgValue(args, name); v != "" && !bytes.Contains(b, []byte(v)) {
			t.Errorf("%q has %q as %q", b, v, name)
		}
		if len(args) > len(b)+1 {
			t.Errorf("%d arguments in %d bytes", len(args), len(b))
		}
		if n := FDInode(b); n != "" && strings.ContainsAny(n, "\n") {
			t.Errorf("%q has the inode %q", b, n)
		}
		_, _ = SocketInode(name)
	})
}

// TestArgsReaderLeftBehind: a process that blocks who reads its arguments costs
// one wait, and is read when it comes.
func TestArgsReaderLeftBehind(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	root := t.TempDir()
	for pid := 10; pid < 20; pid++ {
		evidencetest.WriteTree(t, root, map[string]string{fmt.Sprintf("%d/stat", pid): ""})
		if err := unix.Mkfifo(filepath.Join(root, strconv.Itoa(pid), "cmdline"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := ArgsReader{ProcFS: root}
	ids := map[int]ID{}
	start := time.Now()
	for range 3 {
		for pid := 10; pid < 20; pid++ {
			ids[pid] = ID{pid, 1}
			if got := r.Of(ids[pid]); got != nil {
				t.Errorf("%d: %q", pid, got)
			}
		}
	}
	if took := time.Since(start); len(r.pending) != argsPending || took > argsPending*argsWait+time.Second {
		t.Errorf("%d wait, after %s; want %d", len(r.pending), took, argsPending)
	}
	answer := func(id ID) {
		f, err := os.OpenFile(filepath.Join(root, strconv.Itoa(id.PID), "cmdline"), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.WriteString("shim\x00-id\x00x\x00")
		_ = f.Close()
	}
	for id := range r.pending {
		answer(id)
	}
	for deadline := time.Now().Add(10 * time.Second); len(r.pending) > 0 && time.Now().Before(deadline); r.Forget(ids) {
		time.Sleep(time.Millisecond)
	}
	if len(r.pending) > 0 {
		t.Fatalf("%d have not come back", len(r.pending))
	}
	for id, args := range r.known {
		if ArgValue(args, "id") != "x" || !slices.Equal(r.Of(id), args) {
			t.Errorf("%d: %q", id.PID, args)
		}
	}
	if r.Forget(nil); len(r.known) != 0 {
		t.Errorf("%v is remembered", r.known)
	}
}
