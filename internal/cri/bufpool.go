package cri

import (
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"
)

// Transport returns how plegd's connections receive, for the bench: what they
// would cost that only receive.
func Transport() []grpc.DialOption { return transport(&framePool{}) }

func transport(frames *framePool) []grpc.DialOption {
	return []grpc.DialOption{
		// As large as the largest answer: none then waits for permission to go
		// on, and gRPC does not measure the connection with pings meanwhile.
		grpc.WithInitialWindowSize(MaxMessageBytes),
		grpc.WithInitialConnWindowSize(MaxMessageBytes),
		experimental.WithBufferPool(frames),
	}
}

// The transport receives in frames of at most frameBytes (HTTP/2's default,
// which gRPC keeps), each in a buffer of its own.
const frameBytes = 16 << 10

// framePool holds the buffers that a connection receives into. gRPC's own pool
// clears a buffer each time it is taken, which for lists is a pass over every
// byte, and loses all of them at a garbage collection. This one gives out what
// was used last, as it is: gRPC overwrites it. It keeps as many as recent
// answers needed at once, so that an oversized one is paid for only once.
type framePool struct {
	mu           sync.Mutex
	free         []*[]byte
	out          int // buffers in use
	most, before int // the most in this window of answers, and in the one before
	answers      int // lists in this window
}

// window is the number of lists after which what was needed is looked at.
const window = 16

// Get returns a buffer of n bytes.
func (p *framePool) Get(n int) *[]byte {
	if n > frameBytes {
		return mem.DefaultBufferPool().Get(n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out++
	p.most = max(p.most, p.out)
	var b *[]byte
	if last := len(p.free) - 1; last >= 0 {
		b, p.free[last] = p.free[last], nil
		p.free = p.free[:last]
	} else {
		b = new([]byte)
		*b = make([]byte, frameBytes)
	}
	*b = (*b)[:n]
	return b
}

// Put takes a buffer back.
func (p *framePool) Put(b *[]byte) {
	if cap(*b) != frameBytes {
		mem.DefaultBufferPool().Put(b)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out--
	p.free = append(p.free, b)
}

// answered says that a list has been read, and its buffers are back.
func (p *framePool) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answers++; p.answers < window {
		return
	}
	if keep := max(p.most, p.before); keep < len(p.free) {
		clear(p.free[keep:])
		p.free = p.free[:keep]
	}
	p.answers, p.most, p.before = 0, p.out, p.most
}
