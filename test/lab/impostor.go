//go:build e2e

package lab

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// Impostor is a process that listens on a runtime's socket and is no runtime.
type Impostor string

// The impostors.
const (
	// HTTPServer speaks HTTP/1.1.
	HTTPServer Impostor = "http"
	// Silent accepts and sends nothing.
	Silent Impostor = "silent"
	// NeverAccepts leaves each client in its accept queue.
	NeverAccepts Impostor = "never accepts"
)

// impostorEnv holds an impostorConfig in the environment of an impostor's process, and is unset everywhere else.
const impostorEnv = "PLEGD_LAB_IMPOSTOR"

type impostorConfig struct {
	Kind Impostor
	Path string
}

// Start has the impostor listen on a path until stop is called or the test ends.
// It is a process of its own, as a runtime is: plegd looks for the listening process.
func (i Impostor) Start(t testing.TB, path string) (pid int, stop func()) {
	t.Helper()
	cmd := Again(t, impostorEnv, impostorConfig{Kind: i, Path: path})
	cmd.Stderr = os.Stderr
	_, stop = StartCommand(t, cmd)
	Eventually(t, 5*time.Second, "the impostor listens", func() error {
		if i == NeverAccepts { // a connection would stay in its queue
			return listensAt(path)
		}
		c, err := net.Dial("unix", path)
		if err == nil {
			Close(c)
		}
		return err
	})
	return cmd.Process.Pid, stop
}

// listensAt looks for a listener bound to a path.
func listensAt(path string) error {
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		// Num: RefCount Protocol Flags Type St Inode Path; 00010000 listens.
		if f := strings.Fields(line); len(f) == 8 && f[3] == "00010000" && f[7] == path {
			return nil
		}
	}
	return fmt.Errorf("nobody listens at %s", path)
}

// impostorMain is an impostor's process.
func impostorMain() int {
	var config impostorConfig
	err := json.Unmarshal([]byte(os.Getenv(impostorEnv)), &config)
	var l net.Listener
	if err == nil {
		l, err = net.Listen("unix", config.Path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "impostor:", err)
		return 1
	}
	if config.Kind == HTTPServer {
		server := &http.Server{
			Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }),
			ReadHeaderTimeout: time.Minute,
		}
		_ = server.Serve(l)
		return 1
	}
	if config.Kind == NeverAccepts {
		select {}
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return 1
		}
		go func() {
			defer Close(c)
			_, _ = io.Copy(io.Discard, c)
		}()
	}
}
