package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSimulateCommand runs the command and changes its failpoints by the other.
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
	lines := bufio.NewScanner(r)
	if !lines.Scan() || !strings.Contains(lines.Text(), "3 pods with 1 containers each") {
		t.Fatalf("said %q", lines.Text())
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	failpoints := func(args ...string) (int, string, string) {
		var out, errOut bytes.Buffer
		c := execute(t.Context(), append([]string{"simulate", "failpoints", "--socket", socket}, args...), &out, &errOut)
		return c, out.String(), errOut.String()
	}
	if c, out, errOut := failpoints("Status=2*hang->off"); c != 0 || out != "Status=2*hang->off\n" || errOut != "" {
		t.Errorf("set: exit %d, %q, %q", c, out, errOut)
	}
	if c, out, _ := failpoints(); c != 0 || out != "Status=2*hang->off\n" {
		t.Errorf("get: exit %d, %q", c, out)
	}
	if c, out, errOut := failpoints("Status"); c != 1 || out != "" || strings.Count(errOut, "\n") != 1 || !strings.Contains(errOut, `"Status": want name=term`) {
		t.Errorf("wrong: exit %d, %q, %q", c, out, errOut)
	}
	if c, out, _ := failpoints(""); c != 0 || out != "\n" {
		t.Errorf("clear: exit %d, %q", c, out)
	}
	cancel()
	if c := <-code; c != 0 {
		t.Errorf("exit %d after the signal, want 0", c)
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("the socket is left behind")
	}
}
