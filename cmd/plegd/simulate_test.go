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

func TestSimulateCommandWrongFlags(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	for args, wants := range map[string][]string{
		"--pods=many":        {"--pods", `"many"`, "whole number"},
		"--pods=-3":          {"--pods -3", "0 to 100000"},
		"--containers=-1":    {"--containers -1", "0 to 1000000"},
		"--churn=often":      {"--churn", `"often"`, "0 to 1"},
		"--churn=7":          {"--churn 7", "0 to 1"},
		"--failpoints=x":     {"--failpoints", `"x"`, "name=term"},
		"--nonsense":         {"--nonsense"},
		"extra":              {`"extra"`},
		"--socket=/dev/null": {"--socket /dev/null", "no socket"},
	} {
		var errOut bytes.Buffer
		line := []string{"simulate"}
		if !strings.HasPrefix(args, "--socket") {
			line = append(line, "--socket", socket)
		}
		code := execute(t.Context(), append(line, args), io.Discard, &errOut)
		want := exitUsage
		if strings.HasPrefix(args, "--socket") {
			want = 1 // the path is taken
		}
		if code != want || strings.Count(errOut.String(), "\n") != 1 {
			t.Errorf("%s: exit %d, %q; want %d and one line", args, code, errOut.String(), want)
		}
		for _, want := range wants {
			if !strings.Contains(errOut.String(), want) {
				t.Errorf("%s: %q does not say %q", args, errOut.String(), want)
			}
		}
	}
}
