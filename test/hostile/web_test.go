//go:build e2e

package hostile

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/lab"
)

// The kubelet asks plegd's health endpoints, and Prometheus /metrics, within a second.
const probeLimit = time.Second

// TestHealthBesideClients asks each health endpoint and /metrics 20 times beside clients that
// occupy connections or check passwords.
func TestHealthBesideClients(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), 10)
	lab.Must(t, err)
	request := func(path string, n int) string {
		return strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n", n)
	}
	for name, attack := range map[string]func(ctx context.Context, address string){
		"10,000 idle connections": func(ctx context.Context, address string) {
			for range 10_000 {
				occupy(ctx, address, "")
			}
		},
		"130 silent connections a second": func(ctx context.Context, address string) {
			go func() {
				for tick := time.Tick(time.Second / 130); ctx.Err() == nil; <-tick {
					occupy(ctx, address, "")
				}
			}()
		},
		"400 readers that do not read": func(ctx context.Context, address string) {
			for range 200 {
				occupy(ctx, address, request("/metrics", 100))
				occupy(ctx, address, request("/healthz", 20_000))
			}
		},
		"200 headers that do not end": func(ctx context.Context, address string) {
			for range 200 {
				occupy(ctx, address, "GET / HTTP/1.1\r\nX: ")
			}
		},
		"200 bodies that do not end": func(ctx context.Context, address string) {
			for range 200 {
				occupy(ctx, address, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\nx")
			}
		},
		"1,000 silent connections of 250 addresses": func(ctx context.Context, address string) {
			for i := range 1000 {
				occupyFrom(ctx, &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i%250+1))}, address, "")
			}
		},
		"60 wrong passwords at a time": func(ctx context.Context, address string) {
			for i := range 60 {
				go guess(ctx, address, i)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			countAttack(t, clients)
			rt, socket := serve(t, fakeruntime.Options{}, 20)
			config := filepath.Join(lab.Dir(t), "web.yml")
			write(t, config, "basic_auth_users:\n  prometheus: "+string(hash)+"\n")
			p := start(t, socket, lab.PlegdOptions{Flags: []string{"--web.config.file=" + config}})
			p.awaitReason()
			urls := []string{"/-/healthy", "/-/ready", "/healthz", "/metrics"}
			for i, path := range urls {
				urls[i] = "http://prometheus:secret@" + p.Address + path
			}
			probe(t, urls[3]) // Prometheus has scraped before
			ctx, cancel := context.WithCancel(t.Context())
			attack(ctx, p.Address)
			answered, slowest := 0, time.Duration(0)
			for range 20 {
				for _, url := range urls {
					took, ok := probe(t, url)
					if ok {
						answered++
					}
					slowest = max(slowest, took)
				}
			}
			cancel()
			t.Logf("%d of %d probes were answered within %s; the slowest took %s", answered, 20*len(urls), probeLimit, slowest)
			check.Equal(t, answered, 20*len(urls), "%d probes were not answered within %s", 20*len(urls)-answered, probeLimit)
			if n := strings.Count(p.log(), "too many connections"); n > 1 {
				t.Errorf("%d lines of the log are about refused connections", n)
			}
			p.worksOn(rt)
		})
	}
}

// occupy opens a connection until ctx is done, writes to it and reads nothing.
func occupy(ctx context.Context, address, text string) { occupyFrom(ctx, nil, address, text) }

// occupyFrom does so from an address.
func occupyFrom(ctx context.Context, local net.Addr, address, text string) {
	dialer := net.Dialer{LocalAddr: local, Timeout: patience}
	conn, err := dialer.Dial("tcp", address)
	if err != nil {
		return
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	if text != "" {
		go func() { _, _ = io.WriteString(conn, text) }()
	}
}

// guess tries one password after another.
func guess(ctx context.Context, address string, seed int) {
	client := &http.Client{Transport: &http.Transport{}, Timeout: patience}
	defer client.CloseIdleConnections()
	for n := 0; ctx.Err() == nil; n++ {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", http.NoBody)
		if err != nil {
			return
		}
		r.SetBasicAuth("prometheus", fmt.Sprint(seed, n))
		response, err := client.Do(r)
		if err != nil {
			continue
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
}

// probe asks once, over a connection of its own.
func probe(t *testing.T, url string) (took time.Duration, ok bool) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: probeLimit}
	start := time.Now()
	response, err := client.Get(url)
	if err != nil {
		t.Logf("%v", err)
		return time.Since(start), false
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Logf("%s: %s, %v", url, response.Status, err)
		return time.Since(start), false
	}
	return time.Since(start), true
}

// TestSignalsEndCommands: a signal ends a command that waits for a FIFO's writer within a second.
func TestSignalsEndCommands(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		fifo := filepath.Join(lab.Dir(t), "fifo")
		lab.Must(t, syscall.Mkfifo(fifo, 0o600))
		cmd := exec.Command(lab.Binary(t), "replay", fifo)
		lab.Must(t, cmd.Start())
		lab.Eventually(t, patience, "the command opens the FIFO", func() error {
			writer, err := os.OpenFile(fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0)
			if err == nil {
				t.Cleanup(func() { _ = writer.Close() })
			}
			return err
		})
		start := time.Now()
		lab.Must(t, cmd.Process.Signal(signal))
		_ = cmd.Wait()
		took := time.Since(start)
		t.Logf("%s: ended after %s with %d", signal, took, cmd.ProcessState.ExitCode())
		if took > 2*probeLimit || cmd.ProcessState.ExitCode() <= 0 {
			t.Errorf("%s: ended after %s with %d", signal, took, cmd.ProcessState.ExitCode())
		}
	}
}
