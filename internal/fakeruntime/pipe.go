package fakeruntime

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipe returns both ends of a buffered connection in memory. It makes no timer that fires at once, as
// bufconn of grpc does: in a bubble of testing/synctest such a timer runs beside others, which Go's
// race detector does not survive (golang/go#78156).
func pipe() (client, server net.Conn) {
	request := newStream()
	answer := newStream()
	return &conn{in: answer, out: request}, &conn{in: request, out: answer}
}

// stream is one direction of a connection.
type stream struct {
	mu       sync.Mutex
	changed  sync.Cond
	data     []byte // at most pipeSize
	isClosed bool   // by its reader
	isEnded  bool   // by its writer
	read     deadline
	write    deadline
}

func newStream() *stream {
	s := &stream{}
	s.changed.L = &s.mu
	return s
}

// deadline is the end of reads or writes; the stream's lock guards it.
type deadline struct {
	timer    *time.Timer
	times    int // how often it has been set
	isPassed bool
}

// Read waits for data, the writer's end, or the deadline.
func (s *stream) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.isClosed:
			return 0, io.ErrClosedPipe
		case s.read.isPassed:
			return 0, os.ErrDeadlineExceeded
		case len(s.data) > 0:
			n := copy(b, s.data)
			s.data = s.data[n:]
			s.changed.Broadcast()
			return n, nil
		case s.isEnded:
			return 0, io.EOF
		}
		s.changed.Wait()
	}
}

// Write waits for room until all is written, an end is closed, or the deadline.
func (s *stream) Write(b []byte) (written int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		room := min(pipeSize-len(s.data), len(b)-written)
		switch {
		case s.isClosed || s.isEnded:
			return written, io.ErrClosedPipe
		case written == len(b):
			return written, nil
		case s.write.isPassed:
			return written, os.ErrDeadlineExceeded
		case room > 0:
			s.data = append(s.data, b[written:written+room]...)
			written += room
			s.changed.Broadcast()
			continue
		}
		s.changed.Wait()
	}
}

// setDeadline sets one of the stream's deadlines; the zero time is none.
func (s *stream) setDeadline(d *deadline, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	left := time.Until(t)
	d.isPassed = !t.IsZero() && left <= 0
	d.times++
	if left > 0 {
		times := d.times
		d.timer = time.AfterFunc(left, func() { s.pass(d, times) })
	}
	s.changed.Broadcast()
}

// pass ends a deadline whose timer has fired, unless another one has been set.
func (s *stream) pass(d *deadline, times int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.times == times {
		d.isPassed = true
		s.changed.Broadcast()
	}
}

// end tells the other side that this one reads or writes no longer.
func (s *stream) end(side *bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*side = true
	s.changed.Broadcast()
}

// conn is one end of a connection in memory.
type conn struct{ in, out *stream }

func (c *conn) Read(b []byte) (int, error)  { return c.in.Read(b) }
func (c *conn) Write(b []byte) (int, error) { return c.out.Write(b) }

// Close ends both directions; the other end can still read the data written before.
func (c *conn) Close() error {
	c.in.end(&c.in.isClosed)
	c.out.end(&c.out.isEnded)
	return nil
}

// SetDeadline sets the deadline of reads and writes.
func (c *conn) SetDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.read, t)
	c.out.setDeadline(&c.out.write, t)
	return nil
}

// SetReadDeadline sets the deadline of reads.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.read, t)
	return nil
}

// SetWriteDeadline sets the deadline of writes.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.write, t)
	return nil
}

// LocalAddr is a unix address without a name, as a client's.
func (c *conn) LocalAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// RemoteAddr is a unix address without a name.
func (c *conn) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }
