//go:build e2e

package hostile

import (
	"net"
	"sync"
	"testing"
)

// listenNotify stands in for systemd: it returns what was sent to it.
func listenNotify(t *testing.T, path string) (messages func() []string) {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var got []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 1<<20)
		for {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			mu.Lock()
			got = append(got, string(b[:n]))
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), got...)
	}
}
