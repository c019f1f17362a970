package sockdiag

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/fuzzcorpus"
)

// TestParseDiag decodes answers as Linux 6.18 gives them.
func TestParseDiag(t *testing.T) {
	tests := map[string]Socket{
		"listener.bin": {
			Inode: 640491, Kind: unix.SOCK_STREAM, State: Listening, Cookie: 1, Name: "/run/r.sock",
			File: FileID{Major: 254, Inode: 9978417}, RQueue: 3, WQueue: 4,
		},
		"server_end.bin": {
			Inode: 640500, Kind: unix.SOCK_STREAM, State: Established, Cookie: 2, Name: "/run/r.sock",
			File: FileID{Major: 254, Inode: 9978417}, Peer: 640492, RQueue: 1000, WQueue: 214016,
		},
		"client_end.bin": {
			Inode: 640492, Kind: unix.SOCK_STREAM, State: Established, Cookie: 3,
			Peer: 640500, RQueue: 180224, WQueue: 2304,
		},
		"abstract.bin": {Inode: 7, Kind: unix.SOCK_STREAM, State: Listening, Cookie: 9, Name: "@a\x00b", WQueue: 5},
	}
	for name, want := range tests {
		b, err := os.ReadFile(filepath.Join("testdata/sockdiag", name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseDiag(b)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
		for cut := range b {
			// Cut between two attributes it reads as a shorter answer; never more
			// than that, and never a panic.
			if s, err := parseDiag(b[:cut]); err == nil && s.Inode != want.Inode {
				t.Errorf("%s cut to %d bytes: %+v", name, cut, s)
			}
		}
	}
}

func FuzzSockDiag(f *testing.F) {
	fuzzcorpus.Add(f)
	seeds, err := filepath.Glob("testdata/sockdiag/*.bin")
	if err != nil || len(seeds) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, name := range seeds {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)-1])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseDiag(b)
		if err != nil {
			if s != (Socket{}) {
				t.Errorf("%v, and yet %+v", err, s)
			}
			return
		}
		if len(b) < diagMessageLen || b[0] != unix.AF_UNIX {
			t.Errorf("%x was taken for a socket", b)
		}
		if len(s.Name) > len(b) {
			t.Errorf("a name of %d bytes in %d", len(s.Name), len(b))
		}
	})
}
