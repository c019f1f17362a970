package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/logging"
)

const (
	// maxControlConns is how many connections the control socket holds at once.
	maxControlConns = 8
	// controlCheckEvery is how often the control server looks whether its
	// socket is still in the file system.
	controlCheckEvery = 10 * time.Second
	// maxSocketPath is the longest path of a unix socket: sun_path less its
	// final 0.
	maxSocketPath = 107
)

// ValidateControlSocket checks the value of --control-socket. An empty path
// means no control socket.
func ValidateControlSocket(path string) error {
	switch {
	case path == "":
		return nil
	case !filepath.IsAbs(path):
		return fmt.Errorf("--control-socket %q: is not absolute; give an absolute path, or an empty one for no control socket", path)
	case len(path) > maxSocketPath:
		return fmt.Errorf("--control-socket %q: has %d bytes; give a path of at most %d", path, len(path), maxSocketPath)
	}
	return nil
}

// ControlServer serves a handler on a unix socket that only its owner can
// open. It is a task.
type ControlServer struct {
	path    string
	handler http.Handler
	log     *zap.Logger
	retry   time.Duration
	check   time.Duration
	ready   chan struct{}
	serving
}

// NewControlServer returns a server of h on the socket at path, which has been
// validated.
func NewControlServer(path string, h http.Handler, log *zap.Logger) *ControlServer {
	return &ControlServer{
		path: path, handler: h, log: log,
		retry: retryInterval, check: controlCheckEvery,
		ready: make(chan struct{}),
	}
}

// String names the task.
func (s *ControlServer) String() string { return "control server on " + s.path }

// Ready is closed once the socket has been tried for the first time.
func (s *ControlServer) Ready() <-chan struct{} { return s.ready }

// Run serves until ctx ends, then removes the socket and returns nil. Where the
// socket cannot be made it says so once and tries again every few seconds; a
// socket that somebody removed is made again.
func (s *ControlServer) Run(ctx context.Context) error {
	var failed logging.OnChange[string] // the last error
	for first := true; ctx.Err() == nil; first = false {
		l, err := listenControl(ctx, s.path)
		s.set(s.path, err)
		if first {
			close(s.ready)
		}
		if err == nil {
			if _, changed := failed.Set(""); changed {
				s.log.Info("serving the control socket again", zap.String("path", s.path))
			}
			err = s.serve(ctx, l)
		}
		if ctx.Err() != nil {
			break
		}
		s.set(s.path, err)
		if _, changed := failed.Set(err.Error()); changed {
			s.log.Warn("the control socket cannot be served; plegd runs on and tries again",
				zap.String("path", s.path), zap.Duration("every", s.retry), zap.Error(err))
		}
		sleep(ctx, s.retry)
	}
	return nil
}

// errSocketGone is why a control server stops serving a socket that works.
var errSocketGone = errors.New("the control socket has been removed or replaced in the file system")

func (s *ControlServer) serve(ctx context.Context, l *controlListener) error {
	server := newServer(s.handler, s.log)
	served := make(chan error, 1)
	go func() { served <- server.Serve(limited(l, maxControlConns)) }()

	check := time.NewTicker(s.check)
	defer check.Stop()
	for {
		select {
		case err := <-served:
			l.remove()
			stop(server)
			return fmt.Errorf("serving %s: %w", s.path, err)
		case <-ctx.Done():
			l.remove()
			stop(server)
			<-served
			return nil
		case <-check.C:
			if l.stillThere() {
				continue
			}
			stop(server)
			<-served
			return fmt.Errorf("serving %s: %w", s.path, errSocketGone)
		}
	}
}

// controlListener is a listening unix socket and the file that it is bound to.
type controlListener struct {
	unixListener
	path string
	file os.FileInfo
}

// stillThere reports whether the path still leads to this socket.
func (l *controlListener) stillThere() bool {
	now, err := os.Lstat(l.path)
	return err == nil && os.SameFile(now, l.file)
}

// remove unlinks the socket, unless the path has come to lead to another.
func (l *controlListener) remove() {
	unlock, err := lockDir(filepath.Dir(l.path))
	if err != nil {
		return // another plegd is at work on this very path; it clears up
	}
	defer unlock()
	if l.stillThere() {
		_ = os.Remove(l.path)
	}
}
