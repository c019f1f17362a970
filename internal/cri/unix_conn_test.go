package cri

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// connected returns both ends of a connection of DialPath.
func connected(t *testing.T) (c *unixConn, server net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	must.Do(t, err)
	t.Cleanup(func() { _ = l.Close() })
	conn, err := DialPath(l.Addr().String())(t.Context())
	must.Do(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	server, err = l.Accept()
	must.Do(t, err)
	t.Cleanup(func() { _ = server.Close() })
	return conn.(*unixConn), server
}

// TestWokenByArrivals: no epoll instance asks when a connection can be written to, and one asks what comes in.
func TestWokenByArrivals(t *testing.T) {
	c, _ := connected(t)
	all, err := filepath.Glob("/proc/self/fdinfo/*")
	must.Do(t, err)
	watched := 0
	for _, path := range all {
		info, _ := os.ReadFile(path) // none of a descriptor that was closed meanwhile
		for line := range strings.Lines(string(info)) {
			var fd int
			var events uint32
			_, err := fmt.Sscanf(line, "tfd: %d events: %x", &fd, &events)
			if err != nil || fd != c.socket {
				continue
			}
			watched++
			check.Equal(t, events&(unix.EPOLLIN|unix.EPOLLOUT), uint32(unix.EPOLLIN), "events in %s", path)
		}
	}
	check.Equal(t, watched, 1, "epoll instances that watch the socket")
}

// TestWriteWaits: more than the other end has room for is written as that reads, and no further once the
// connection is closed.
func TestWriteWaits(t *testing.T) {
	sent := bytes.Repeat([]byte("0123456789abcdef"), 256<<10)
	for _, closes := range []bool{false, true} {
		t.Run(fmt.Sprint("closes ", closes), func(t *testing.T) {
			c, server := connected(t)
			ended := make(chan error, 1)
			go func() {
				_, err := c.Write(sent)
				ended <- err
			}()
			first := make([]byte, 1)
			_, err := io.ReadFull(server, first)
			must.Do(t, err)
			if closes {
				must.Do(t, c.Close())
				if err := <-ended; err == nil {
					t.Error("all was written")
				}
				return
			}
			rest := make([]byte, len(sent)-1)
			_, err = io.ReadFull(server, rest)
			must.Do(t, err)
			must.Do(t, <-ended)
			check.Equal(t, bytes.Equal(append(first, rest...), sent), true, "what came is what was sent")
		})
	}
}

// TestReadEnds: what ends a read that waits shows in its error.
func TestReadEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(c *unixConn, server net.Conn) error
		want error
	}{
		{"closed", func(c *unixConn, _ net.Conn) error { return c.Close() }, net.ErrClosed},
		{"closed by the other end", func(_ *unixConn, server net.Conn) error { return server.Close() }, io.EOF},
		{"its deadline", func(c *unixConn, _ net.Conn) error { return c.SetDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, server := connected(t)
			ended := make(chan error, 1)
			go func() {
				_, err := c.Read(make([]byte, 1))
				ended <- err
			}()
			must.Do(t, tt.end(c, server))
			if err := <-ended; !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
	c, _ := connected(t)
	must.Do(t, c.Close())
	check.Equal(t, errors.Is(c.Close(), net.ErrClosed), true, "an error of what is closed")
}
