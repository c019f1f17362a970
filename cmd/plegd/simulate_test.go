package main

import (
	"bufio"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// TestSimulateCommand runs the command and changes its failpoints by the other. TestSimulate of
// internal/fakeruntime has the rest.
func TestSimulateCommand(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- execute(ctx, []string{"simulate", "--socket", socket, "--pods=3", "--containers=1", "--churn=0.5"}, io.Discard, w)
		_ = w.Close()
	}()
	if !bufio.NewScanner(r).Scan() {
		t.Fatal("it does not serve")
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"Status=2*hang->off"}, 0, "Status=2*hang->off\n"},
		{nil, 0, "Status=2*hang->off\n"},
		{[]string{"Status"}, 1, `"Status": want name=term`},
	} {
		c, out, errOut := plegd(t, append([]string{"simulate", "failpoints", "--socket", socket}, tt.args...)...)
		if c != tt.code || !strings.Contains(out+errOut, tt.want) || strings.Count(out+errOut, "\n") != 1 {
			t.Errorf("%q: exit %d, %q, %q", tt.args, c, out, errOut)
		}
	}
	cancel()
	if c := <-code; c != 0 {
		t.Errorf("exit %d after the signal, want 0", c)
	}
}
