//go:build e2e

package lab

import (
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
)

// Proxy is a socket in front of a runtime's whose connections can be cut.
type Proxy struct {
	// Socket is its path.
	Socket string

	mu      sync.Mutex
	open    map[net.Conn]struct{}
	refuses bool
}

// NewProxy listens in front of a runtime's socket until the test ends.
func NewProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	p := &Proxy{Socket: filepath.Join(Dir(t), "proxy.sock"), open: map[net.Conn]struct{}{}}
	l, err := net.Listen("unix", p.Socket)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { p.serve(c, upstream) })
		}
	})
	t.Cleanup(func() {
		closeQuietly(l)
		p.Refuse(true)
		serving.Wait()
	})
	return p
}

func (p *Proxy) serve(c net.Conn, upstream string) {
	defer closeQuietly(c)
	s, err := net.Dial("unix", upstream)
	if err != nil {
		return
	}
	defer closeQuietly(s)
	p.mu.Lock()
	refuses := p.refuses
	p.open[c], p.open[s] = struct{}{}, struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.open, c)
		delete(p.open, s)
		p.mu.Unlock()
	}()
	if refuses {
		return
	}
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			done <- struct{}{}
		}()
	}
	<-done
	closeQuietly(c)
	closeQuietly(s)
	<-done
}

// Cut closes every connection that is open.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		closeQuietly(c)
	}
}

// Refuse cuts every connection and every one that is made from now on, until it
// is called with false.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	p.refuses = on
	p.mu.Unlock()
	if on {
		p.Cut()
	}
}
