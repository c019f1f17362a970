package server

import (
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
	"github.com/plegd/plegd/test/viewtest"
)

func newTestControl(path string) (*Server, *logRecorder) {
	log := newLogRecorder()
	s := NewControlServer(path, testHandler(viewtest.NewSource(viewtest.Degraded()), true), log.log)
	s.retry = 20 * time.Millisecond
	return s, log
}

func serves(t *testing.T, path string) bool {
	t.Helper()
	s, _, err := (&Client{Socket: path, timeout: time.Minute}).Status(t.Context())
	return err == nil && s.State == "degraded" && s.Facts.Relist.Inspecting[0].Name == "nightly-report-28872000-k4j2p"
}

// TestControlServer: it answers with everything, takes over a stale socket, and removes its
// own at the end.
func TestControlServer(t *testing.T) {
	path := socketPath(t)
	staleSocket(t, path)
	s, log := newTestControl(path)
	stop := start(t, s)
	if !serves(t, path) || log.count("level=warn") > 0 {
		t.Errorf("not served:\n%s", log)
	}
	stop()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// TestControlSocketMode observes the socket's mode from the moment it exists,
// under the most permissive umask. It must not run beside other tests.
func TestControlSocketMode(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	path := socketPath(t)
	stop := make(chan struct{})
	modes := make(chan map[fs.FileMode]int, 1)
	var observed atomic.Bool
	go func() {
		seen := make(map[fs.FileMode]int)
		for {
			select {
			case <-stop:
				modes <- seen
				return
			default:
			}
			if f, err := os.Lstat(path); err == nil {
				seen[f.Mode()]++
				observed.Store(true)
			}
		}
	}()
	for n := 0; n < 300 || !observed.Load(); n++ {
		l, err := listenControl(t.Context(), path)
		must.Do(t, err)
		_ = l.Close()
	}
	close(stop)
	seen := <-modes
	if n := seen[fs.ModeSocket|0o600]; n == 0 || len(seen) != 1 {
		t.Errorf("modes of the socket: %v", seen)
	}
}

// TestControlServerLive: the socket of a daemon that runs is left alone, and
// taken over after its end.
func TestControlServerLive(t *testing.T) {
	path := socketPath(t)
	first, _ := newTestControl(path)
	stopFirst := start(t, first)
	before, err := os.Lstat(path)
	must.Do(t, err)
	second, log := newTestControl(path)
	start(t, second)
	eventually(t, "a second attempt", func() bool { at, _ := second.Source(); return time.Since(at.At) > 0 && log.Len() > 0 })
	after, err := os.Lstat(path)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the first daemon's socket is gone: %v", err)
	}
	stopFirst()
	eventually(t, "the second daemon serves", func() bool { return serves(t, path) })
	if log.count("level=warn") != 1 || log.count("another process serves") != 1 || log.count("serving the control socket") != 1 {
		t.Errorf("logged:\n%s", log)
	}
}

// TestControlServerFullQueue: a daemon that does not accept looks dead and is not.
func TestControlServerFullQueue(t *testing.T) {
	path := socketPath(t)
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	defer syscall.Close(fd)
	must.Do(t, errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)))
	for range 8 {
		if c, err := net.Dial("unix", path); err == nil {
			defer c.Close()
		}
	}
	if _, err := listenControl(t.Context(), path); err == nil || !strings.Contains(err.Error(), "may be in use") {
		t.Errorf("error: %v", err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket is gone: %v", err)
	}
}

// TestControlSocketInTheWay: a file at the path, or in place of its directory, is left alone.
// TestControlServerLive and TestWebServerRetries try again.
func TestControlSocketInTheWay(t *testing.T) {
	for name, want := range map[string]string{"plegd.sock": "is not a socket", "run/plegd.sock": "not a directory"} {
		base := filepath.Dir(socketPath(t))
		blocker := filepath.Join(base, strings.Split(name, "/")[0])
		write(t, blocker, "precious")
		if _, err := listenControl(t.Context(), filepath.Join(base, name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
		if b, err := os.ReadFile(blocker); err != nil || string(b) != "precious" {
			t.Errorf("the file was touched: %q, %v", b, err)
		}
	}
}

// TestClientErrors: each says what to do, and whether no daemon runs or it does not answer.
func TestClientErrors(t *testing.T) {
	served := func(h http.HandlerFunc) string {
		path := socketPath(t)
		l, err := net.Listen("unix", path)
		must.Do(t, err)
		server := &http.Server{Handler: h, ReadHeaderTimeout: time.Second}
		go func() { _ = server.Serve(l) }()
		t.Cleanup(func() { _ = server.Close() })
		return path
	}
	says := func(code int, text string) string {
		return served(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = w.Write([]byte(text))
		})
	}
	stale := socketPath(t)
	staleSocket(t, stale)
	for name, tt := range map[string]struct {
		socket, want string
		is           error
	}{
		"no socket":       {"", "--control-socket", ErrNoDaemon},
		"missing":         {socketPath(t), "no such file", ErrNoDaemon},
		"stale":           {stale, "connection refused", ErrNoDaemon},
		"stuck":           {served(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), "stopped or stuck", ErrNoAnswer},
		"another program": {says(404, ""), "is it a plegd", nil},
		"another version": {says(200, `{"schema_version":99,"plegd_version":"9.9"}`), "(9.9)", nil},
		"no JSON":         {says(200, "hello"), "plegd's JSON", nil},
		"in trouble":      {says(503, "the disk is\x1b[2J gone"), `the disk is\x1b[2J gone`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &Client{Socket: tt.socket, timeout: time.Minute}
			if errors.Is(tt.is, ErrNoAnswer) {
				c.timeout = fetchTimeout
			}
			_, _, err := c.Status(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want %q", err, tt.want)
			}
			for _, kind := range []error{ErrNoDaemon, ErrNoAnswer} {
				check.Equal(t, errors.Is(err, kind), errors.Is(tt.is, kind), "%v: is it %v", err, kind)
			}
		})
	}
}

// TestClientIncidents asks a daemon.
func TestClientIncidents(t *testing.T) {
	path := socketPath(t)
	start(t, NewControlServer(path, incidentHandler(nil), newLogRecorder().log))
	c := &Client{Socket: path, timeout: time.Minute}
	list, err := c.Incidents(t.Context())
	if err != nil || len(list) != 1 || list[0].ID != viewtest.IncidentID {
		t.Errorf("%v, %v", list, err)
	}
	one, err := c.Incident(t.Context(), viewtest.IncidentID)
	if err != nil || len(one.Timeline) != len(viewtest.Incident().Timeline) {
		t.Errorf("%v", err)
	}
	for _, id := range []string{"20261121T030245Z-000000", "../x", ""} {
		if _, err := c.Incident(t.Context(), id); !errors.Is(err, incident.ErrUnknown) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// TestClientPassword: the password is sent to the URL's own origin, and in no error.
func TestClientPassword(t *testing.T) {
	const password = "SECRETPW"
	var leaked []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		leaked = append(leaked, r.URL.Path+" "+r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	redirect := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+"/x", http.StatusFound)
	})
	plain, secure := httptest.NewServer(redirect), httptest.NewTLSServer(redirect)
	defer plain.Close()
	defer secure.Close()
	for name, c := range map[string]Client{
		"another host":         {URL: plain.URL, User: "a:" + password},
		"HTTPS to HTTP":        {URL: secure.URL, User: "a:" + password, Insecure: true},
		"in the URL":           {URL: strings.Replace(plain.URL, "://", "://a:"+password+"@", 1)},
		"in the URL of nobody": {URL: "http://a:" + password + "@127.0.0.1:1"},
		"in a wrong URL":       {URL: "http://a:" + password + "@"},
		"in no URL":            {URL: "http://a:" + password + "@%zz"},
		"without a name":       {URL: plain.URL, User: password},
	} {
		err := c.Validate()
		if err == nil {
			_, _, err = c.Status(t.Context())
		}
		if err == nil || strings.Contains(err.Error(), password) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(leaked) > 0 {
		t.Errorf("sent elsewhere: %v", leaked)
	}
}
