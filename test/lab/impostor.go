//go:build e2e

package lab

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Impostor is something that listens on a runtime's socket and is no runtime.
type Impostor string

// The impostors.
const (
	// HTTPServer speaks HTTP/1.1.
	HTTPServer Impostor = "http"
	// Garbage writes what is no protocol at all.
	Garbage Impostor = "garbage"
	// HangsUp accepts and closes.
	HangsUp Impostor = "hangs up"
)

// impostorEnv holds an impostorConfig in the environment of an impostor's
// process, and is unset everywhere else.
const impostorEnv = "PLEGD_LAB_IMPOSTOR"

type impostorConfig struct {
	Kind Impostor
	Path string
}

// Start has the impostor listen on a path until the test ends. It is a process
// of its own, as a runtime is: plegd looks at who listens.
func (i Impostor) Start(t testing.TB, path string) {
	t.Helper()
	if !mainCalled.Load() {
		t.Fatal("lab: TestMain must call lab.Main")
	}
	config, err := json.Marshal(impostorConfig{Kind: i, Path: path})
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), impostorEnv+"="+string(config))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	Eventually(t, 5*time.Second, "the impostor listens", func() error {
		c, err := net.Dial("unix", path)
		if err == nil {
			closeQuietly(c)
		}
		return err
	})
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
	for {
		c, err := l.Accept()
		if err != nil {
			return 1
		}
		go func() {
			defer closeQuietly(c)
			if config.Kind == Garbage {
				_, _ = io.WriteString(c, strings.Repeat("garbage\x00\xff\n", 100))
				_, _ = c.Read(make([]byte, 1<<16))
			}
		}()
	}
}
