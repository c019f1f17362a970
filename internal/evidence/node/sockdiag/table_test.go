package sockdiag

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnixTable(t *testing.T) {
	const sock = "/run/containerd/containerd.sock"
	tests := []struct {
		name, root string
		names      []string
		want       Table
	}{
		{
			name: "exactly this path", root: "node", names: []string{sock},
			want: Table{Rows: 17, Listeners: []uint32{640491}, Ends: []uint32{640500, 640503, 1201}, Accepted: 3, Pending: 2},
		},
		{
			name: "by either spelling", root: "node", names: []string{"/var" + sock, sock},
			want: Table{Rows: 17, Listeners: []uint32{640491, 640495}, Ends: []uint32{640500, 640503, 1201}, Accepted: 3, Pending: 2},
		},
		{
			name: "a datagram socket is none", root: "node", names: []string{"/run/systemd/notify"},
			want: Table{Rows: 17},
		},
		{
			name: "a path with blanks", root: "node", names: []string{"/run/with blanks /x.sock"},
			want: Table{Rows: 17, Listeners: []uint32{12346}},
		},
		{
			name: "rows that are none, no line end behind the last", root: "hostile", names: []string{"/run/r.sock"},
			want: Table{Rows: 13, Listeners: []uint32{16}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ReadTable(t.Context(), filepath.Join("testdata/unixtable", tt.root), tt.names)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(Table{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestUnixTableMissing(t *testing.T) {
	_, err := ReadTable(t.Context(), t.TempDir(), []string{"/x"})
	if err == nil || !strings.Contains(err.Error(), "net/unix") {
		t.Errorf("no table: %v, want an error that names the file", err)
	}
}

// TestUnixTableHuge reads a table of 200,000 rows: memory stays small, and a
// time limit ends it.
func TestUnixTableHuge(t *testing.T) {
	row := []byte("0000000022bfeea5: 00000002 00000000 00010000 0001 01 640491 /run/other.sock\n")
	huge := func() io.Reader { return io.LimitReader(&repeat{b: row}, int64(len(row))*200_000) }
	allocs := testing.AllocsPerRun(1, func() {
		got, err := ScanTable(context.Background(), huge(), []string{"/run/r.sock"})
		if err != nil || got.Rows != 200_000 || got.Listeners != nil {
			t.Errorf("%+v, %v", got, err)
		}
	})
	if allocs > 100 {
		t.Errorf("%v allocations for a table without a match", allocs)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := ScanTable(ctx, huge(), nil); err == nil {
		t.Errorf("out of time, and yet %+v", got)
	}
}

// repeat reads b again and again.
type repeat struct {
	b []byte
	n int
}

func (r *repeat) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = r.b[r.n]
		r.n = (r.n + 1) % len(r.b)
	}
	return len(p), nil
}

func FuzzUnixTable(f *testing.F) {
	for _, root := range []string{"node", "hostile"} {
		b, err := os.ReadFile(filepath.Join("testdata/unixtable", root, "net/unix"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, "/run/r.sock")
		f.Add(b, "/run/containerd/containerd.sock")
	}
	f.Fuzz(func(t *testing.T, b []byte, name string) {
		got, err := ScanTable(t.Context(), bytes.NewReader(b), []string{name})
		if err != nil {
			t.Fatal(err)
		}
		if lines := bytes.Count(b, []byte("\n")) + 1; got.Rows > lines {
			t.Errorf("%d rows in %d lines", got.Rows, lines)
		}
		if n := len(got.Listeners) + got.Accepted + got.Pending; n > got.Rows || len(got.Ends) != got.Accepted {
			t.Errorf("%+v", got)
		}
		for _, inode := range append(got.Listeners, got.Ends...) {
			if !bytes.Contains(b, fmt.Append(nil, inode)) {
				t.Errorf("inode %d is not in the table", inode)
			}
		}
	})
}

func BenchmarkUnixTable(b *testing.B) {
	for b.Loop() {
		if _, err := ReadTable(b.Context(), "/proc", []string{"/run/r.sock"}); err != nil {
			b.Fatal(err)
		}
	}
}
