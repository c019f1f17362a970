package evidence

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

const (
	period  = 2 * time.Second
	timeout = time.Second
	soon    = 500 * time.Millisecond // the time between two connects that fail
)

// probes is a Dialer with everything that it tells.
type probes struct {
	*Dialer

	done  chan facts.Probe
	all   []facts.Probe
	calls chan cri.Call
	stop  func()
}

func (p *probes) CallDone(c cri.Call) { p.calls <- c }

// told returns all probes so far.
func (p *probes) told() []facts.Probe {
	for len(p.done) > 0 {
		p.all = append(p.all, <-p.done)
	}
	return p.all
}

// next waits for a probe that ends.
func (p *probes) next(t *testing.T) facts.Probe {
	t.Helper()
	select {
	case d := <-p.done:
		return d
	case <-time.After(20 * time.Second):
		t.Fatal("no probe ended in 20s")
		return facts.Probe{}
	}
}

// probe runs a Dialer on a runtime until the test ends.
func probe(t *testing.T, opts DialOptions) *probes {
	t.Helper()
	p := &probes{done: make(chan facts.Probe, 10000), calls: make(chan cri.Call, 10000)}
	if opts.Path == nil {
		opts.Path = func() string { return "/run/fakeruntime/fakeruntime.sock" }
	}
	opts.Period, opts.Timeout = cmp.Or(opts.Period, period), cmp.Or(opts.Timeout, timeout)
	opts.Observer, opts.Done = p, func(d facts.Probe) { p.done <- d }
	p.Dialer = NewDialer(opts)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	p.stop = sync.OnceFunc(func() {
		cancel()
		check.NoError(t, <-ended, "Run")
	})
	t.Cleanup(p.stop)
	go func() { ended <- p.Run(ctx) }()
	return p
}

func serve(t *testing.T, opts fakeruntime.Options) *fakeruntime.Runtime {
	t.Helper()
	rt := fakeruntime.New(opts)
	rt.Start()
	t.Cleanup(rt.Stop)
	return rt
}

// TestDialSucceeds: the stages' times, and a probe every period.
func TestDialSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := serve(t, fakeruntime.Options{})
		rt.Set("Version", fakeruntime.Delay(300*time.Millisecond))
		rt.Set(fakeruntime.Socket, fakeruntime.NoAccept())
		time.AfterFunc(200*time.Millisecond, func() { rt.Set(fakeruntime.Socket) })
		start := time.Now()
		p := probe(t, DialOptions{Dial: rt.Dialer()})
		check.Equal(t, p.Last(), facts.Probe{}, "before the first probe")
		later(time.Second)
		want := facts.Probe{At: start, OK: true, Settings: 200 * time.Millisecond, RPC: 300 * time.Millisecond}
		check.Equal(t, p.Last(), want, "p.Last()")
		later(10 * time.Second) // one at 0, 2.5, 4.8, 7.1 and 9.4 s
		if told := p.told(); len(told) != 5 || told[0] != want || !told[4].At.Equal(start.Add(9400*time.Millisecond)) || told[4] != p.Last() {
			t.Errorf("%d results: %+v", len(told), told)
		}
		if _, open := rt.Accepted(); rt.Dials() != 5 || open != 0 || len(p.calls) != 5 || len(rt.WriteCalls()) > 0 {
			t.Errorf("5 probes: %d connections, %d open between two, %d calls, %v", rt.Dials(), open, len(p.calls), rt.WriteCalls())
		}
		for len(p.calls) > 0 {
			if c := <-p.calls; c.Operation != cri.OpVersion || c.Code != cri.CodeOK || c.Duration != 300*time.Millisecond {
				t.Errorf("the observer received %+v", c)
			}
		}
	})
}

// dialFaults are what a fresh connection may meet.
var dialFaults = []struct {
	name   string
	fault  func(*fakeruntime.Runtime)
	fix    func(*fakeruntime.Runtime) // nil: no faults
	stage  facts.Stage
	cause  facts.Cause
	detail string
	within time.Duration // of the fix
}{
	{"gone", (*fakeruntime.Runtime).Stop, start, facts.StageConnect, facts.CauseMissing, "no such file", soon},
	{"killed", (*fakeruntime.Runtime).Kill, start, facts.StageConnect, facts.CauseRefused, "nobody listens", soon},
	{"forbidden", dialError(syscall.EACCES), nil, facts.StageConnect, facts.CausePermissionDenied, "permission denied", soon},
	{"queue full", dialError(syscall.EAGAIN), nil, facts.StageConnect, facts.CauseQueueFull, "", soon},
	{"another type", dialError(syscall.EPROTOTYPE), nil, facts.StageConnect, facts.CauseNotSocket, "", soon},
	{"strange", dialError(syscall.EIO), nil, facts.StageConnect, facts.CauseError, "input/output error", soon},
	{"not accepted", socket(fakeruntime.NoAccept()), nil, facts.StageSettings, facts.CauseTimeout, "", 0},
	{"frozen", socket(fakeruntime.Freeze()), nil, facts.StageSettings, facts.CauseTimeout, "", 0},
	// The fake runtime hangs up on the connection that waits, so the next one tells.
	{"no settings", socket(fakeruntime.NoSettings()), nil, facts.StageSettings, facts.CauseTimeout, "", period},
	// "hung up on" is in TestDialUnix: in memory the errors are not those of sockets.
	{"garbage", socket(fakeruntime.Garbage()), nil, facts.StageSettings, facts.CauseProtocol, "", period},
	{"settings and nothing more", socket(fakeruntime.SettingsOnly()), nil, facts.StageRPC, facts.CauseTimeout, "", 2 * period},
	{"no answer", version(fakeruntime.Hang()), nil, facts.StageRPC, facts.CauseTimeout, "no answer to Version", period},
	{"recovering", version(fakeruntime.Error(codes.Unknown, "server is not initialized yet")), nil, facts.StageRPC, facts.CauseNotInitialized, "not initialized", period},
	{"of another API", version(fakeruntime.Error(codes.Unimplemented, "unknown service")), nil, facts.StageRPC, facts.CauseUnimplemented, "", period},
	{"an error", version(fakeruntime.Error(codes.Internal, "boom")), nil, facts.StageRPC, facts.CauseError, "boom", period},
	{"a broken answer", version(fakeruntime.Garbage()), nil, facts.StageRPC, facts.CauseError, "", period},
	{"dying of it", version(fakeruntime.Panic()), nil, facts.StageRPC, facts.CauseClosed, "", period},
}

// TestDialFailures: each fault has its stage and cause, and is gone when the
// fault is.
func TestDialFailures(t *testing.T) {
	for _, tt := range dialFaults {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := serve(t, fakeruntime.Options{})
				tt.fault(rt)
				begin := time.Now()
				p := probe(t, DialOptions{Dial: rt.Dialer()})
				later(10*time.Second + 100*time.Millisecond)
				last := p.Last()
				if !strings.Contains(last.Detail, tt.detail) || strings.Contains(last.Detail, "\n") || last.Failures != len(p.told()) {
					t.Errorf("%d results, %+v, want %q", len(p.told()), last, tt.detail)
				}
				for i, d := range p.told() {
					if d.Stage != tt.stage || d.Cause != tt.cause || d.OK || d.Failures != i+1 || !d.FailedSince.Equal(begin) {
						t.Errorf("result %+v, want %s and %s", d, tt.stage, tt.cause)
					}
				}
				if tt.fix != nil {
					tt.fix(rt)
				}
				rt.SetDialError(nil)
				rt.Set(fakeruntime.Socket)
				rt.Set("Version")
				fixed := time.Now()
				for time.Since(fixed) < tt.within && !p.Last().OK {
					later(50 * time.Millisecond)
				}
				synctest.Wait()
				if last := p.Last(); !last.OK || last.Stage != "" || last.Cause != facts.CauseNone || last.Detail != "" || !last.FailedSince.IsZero() || last.Failures != 0 {
					t.Errorf("%v after it was fixed: %+v", time.Since(fixed), last)
				}
				// Later failures are counted from 1.
				tt.fault(rt)
				later(5 * time.Second)
				if last := p.Last(); last.OK || last.FailedSince.Before(fixed) || last.Failures > 10 {
					t.Errorf("failing again: %+v", last)
				}
			})
		})
	}
}

func start(rt *fakeruntime.Runtime) {
	if err := rt.Restart(); err != nil {
		panic(err)
	}
}

func socket(t fakeruntime.Term) func(*fakeruntime.Runtime) {
	return func(rt *fakeruntime.Runtime) { rt.Set(fakeruntime.Socket, t) }
}

func version(t fakeruntime.Term) func(*fakeruntime.Runtime) {
	return func(rt *fakeruntime.Runtime) { rt.Set("Version", t) }
}

func dialError(err error) func(*fakeruntime.Runtime) {
	return func(rt *fakeruntime.Runtime) { rt.SetDialError(err) }
}

// TestDialSpeaksFirst: CRI-O, which answers only then, is well.
func TestDialSpeaksFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := probe(t, DialOptions{Dial: serve(t, fakeruntime.Options{CRIO: true}).Dialer()})
		later(time.Minute)
		told := p.told()
		if len(told) != 31 || slices.ContainsFunc(told, func(d facts.Probe) bool { return !d.OK }) {
			t.Errorf("%d probes in a minute: %+v", len(told), told)
		}
	})
}

// TestDialStuck: a runtime that takes connections and answers none gets one a
// minute at most, since each stays in its queue; the one that waits tells when
// it is back.
func TestDialStuck(t *testing.T) {
	for name, fault := range map[string]fakeruntime.Term{"noaccept": fakeruntime.NoAccept(), "nosettings": fakeruntime.NoSettings()} {
		synctest.Test(t, func(t *testing.T) {
			rt := serve(t, fakeruntime.Options{})
			rt.Set(fakeruntime.Socket, fault)
			begin := time.Now()
			p := probe(t, DialOptions{Dial: rt.Dialer()})
			later(timeout) // It is said after the timeout, not after a minute.
			if last := p.Last(); last.Stage != facts.StageSettings || last.Cause != facts.CauseTimeout || !last.At.Equal(begin) || last.Failures != 1 {
				t.Errorf("%s: after %v: %+v", name, timeout, last)
			}
			for minutes := 1; minutes <= 60; minutes++ {
				later(time.Until(begin.Add(time.Duration(minutes) * time.Minute)))
				if n := rt.Dials(); n > minutes {
					t.Fatalf("%s: %d connections in %d minutes", name, n, minutes)
				}
			}
			last := p.Last()
			if n := rt.Dials(); n < 55 || !last.FailedSince.Equal(begin) || last.Failures != len(p.told()) || last.Failures != n || last.OK {
				t.Errorf("%s: %d connections in an hour, %d results: %+v", name, n, len(p.told()), last)
			}
			if name == "nosettings" {
				return // the fake runtime hangs up on those that wait when it wakes
			}
			time.Sleep(20 * time.Second) // in the middle of the wait it wakes
			rt.Set(fakeruntime.Socket)
			synctest.Wait()
			if last := p.Last(); !last.OK || last.Failures != 0 || rt.Dials() > 61 {
				t.Errorf("when it woke: %+v, %d connections", last, rt.Dials())
			}
			told := len(p.told())
			later(10 * time.Second)
			if n := rt.Dials(); len(p.told()) < told+5 || !p.Last().OK || n > 66 {
				t.Errorf("no probe every %v: %d results, %d connections", period, len(p.told())-told, n)
			}
		})
	}
}

// TestDialKick: a probe at once, however many ask for it, and one at a time.
func TestDialKick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := serve(t, fakeruntime.Options{})
		p := probe(t, DialOptions{Dial: rt.Dialer(), Period: time.Hour})
		later(time.Minute)
		rt.Set("Version", fakeruntime.Delay(500*time.Millisecond))
		kicked := time.Now()
		for range 2 {
			for range 10 {
				p.ProbeNow()
			}
			synctest.Wait() // then while the probe is under way
		}
		later(time.Minute)
		told := p.told()
		if len(told) != 3 || !told[1].At.Equal(kicked) || !told[2].At.Equal(kicked.Add(500*time.Millisecond)) {
			t.Errorf("%d results: %+v; want one at once and one after it", len(told)-1, told[1:])
		}
		check.Equal(t, rt.Calls("Version").MaxInFlight, 1, "probes at once")
		later(time.Hour) // the period begins again with each
		check.Equal(t, len(p.told()), 4, "probes an hour later")
	})
}

// TestDialStopsPromptly: Run ends at once in each wait, and a probe that it cut short is not
// reported. The bubble would not end with a goroutine left.
func TestDialStopsPromptly(t *testing.T) {
	for name, fault := range map[string]func(*fakeruntime.Runtime){
		"between two probes": func(*fakeruntime.Runtime) {}, "connect fails": (*fakeruntime.Runtime).Kill,
		"not accepted": socket(fakeruntime.NoAccept()), "no answer": version(fakeruntime.Hang()),
	} {
		for _, after := range []time.Duration{0, 500 * time.Millisecond, 1500 * time.Millisecond, 30 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				rt := serve(t, fakeruntime.Options{})
				fault(rt)
				p := probe(t, DialOptions{Dial: rt.Dialer()})
				later(after)
				last, told, stopped := p.Last(), len(p.told()), time.Now()
				p.stop()
				if d := time.Since(stopped); d != 0 || p.Last() != last || len(p.told()) != told {
					t.Errorf("%s, %s: Run continued for %v, last result %+v", name, after, d, p.Last())
				}
			})
		}
	}
}

// TestDialUnix sees the same over a real socket.
func TestDialUnix(t *testing.T) {
	for _, tt := range []struct {
		name    string
		make    func(t *testing.T, path string)
		timeout time.Duration
		stage   facts.Stage
		cause   facts.Cause
		probes  int // where the next one waits, 1
	}{
		{"well", runtimeWith(), 10 * time.Second, "", facts.CauseNone, 20},
		{"a full queue", listen(0, 1), 10 * time.Second, facts.StageConnect, facts.CauseQueueFull, 1},
		{"nobody accepts", listen(5, 0), time.Second, facts.StageSettings, facts.CauseTimeout, 1},
		{"hung up on", runtimeWith(fakeruntime.Close()), 10 * time.Second, facts.StageSettings, facts.CauseClosed, 20},
		{"garbage", runtimeWith(fakeruntime.Garbage()), 10 * time.Second, facts.StageSettings, facts.CauseProtocol, 20},
	} {
		path := evidencetest.SocketPath(t)
		tt.make(t, path)
		p := probe(t, DialOptions{Path: func() string { return path }, Period: 10 * time.Millisecond, Timeout: tt.timeout})
		seen := map[facts.Cause]int{}
		for range tt.probes {
			d := p.next(t)
			seen[d.Cause]++
			if tt.cause == facts.CauseProtocol && d.Cause == facts.CauseClosed {
				continue // it hung up before it was understood: true as well
			}
			if d.OK != (tt.cause == facts.CauseNone) || d.Stage != tt.stage || d.Cause != tt.cause {
				t.Fatalf("%s: %+v, want %q and %q", tt.name, d, tt.stage, tt.cause)
			}
		}
		if seen[tt.cause] < (tt.probes+1)/2 {
			t.Errorf("%s: causes %v, want mostly %q", tt.name, seen, tt.cause)
		}
		if peer := p.peer.Load(); (tt.stage != facts.StageConnect) != (peer != nil && peer.PeerPID == os.Getpid()) {
			t.Errorf("%s: the peer is %+v", tt.name, peer)
		}
	}
}

// runtimeWith serves a runtime with a fault of its socket.
func runtimeWith(fault ...fakeruntime.Term) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		t.Helper()
		rt := fakeruntime.New(fakeruntime.Options{})
		rt.Set(fakeruntime.Socket, fault...)
		must.Do(t, rt.Listen(path))
		t.Cleanup(rt.Stop)
	}
}

// listen listens with room for some connections and one more, and makes some.
func listen(backlog, connections int) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		evidencetest.ListenAt(t, path, backlog)
		evidencetest.Connect(t, path, connections)
	}
}

// TestDialUnixEndsInBetween: a runtime that ends between its SETTINGS and the
// Version call has not shown that it speaks no gRPC.
func TestDialUnixEndsInBetween(t *testing.T) {
	for range 10 {
		path := evidencetest.SocketPath(t)
		l, err := net.Listen("unix", path)
		must.Do(t, err)
		go func() {
			c, err := l.Accept()
			_ = l.Close() // which unlinks the path
			if err == nil {
				_, _ = c.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}) // SETTINGS
				_ = c.Close()
			}
		}()
		p := probe(t, DialOptions{Path: func() string { return path }, Timeout: 10 * time.Second}).next(t)
		missing := p.Stage == facts.StageConnect && p.Cause == facts.CauseMissing
		if !missing && p.Cause != facts.CauseClosed {
			t.Errorf("%+v, want that the path is gone or that the connection was closed", p)
		}
	}
}

// TestDialMoved: a probe that waits for who never answers is given up when the
// path leads to somebody else.
func TestDialMoved(t *testing.T) {
	path := evidencetest.SocketPath(t)
	listen(5, 0)(t, path)
	d := probe(t, DialOptions{Path: func() string { return path }, Period: time.Hour, Timeout: time.Second})
	if p := d.next(t); p.Cause != facts.CauseTimeout {
		t.Fatalf("%+v", p)
	}
	runtimeWith()(t, path+"r")
	must.Do(t, os.Rename(path+"r", path))
	d.moved.Send()
	for p := d.next(t); !p.OK; p = d.next(t) {
		if p.Cause != facts.CauseTimeout || time.Since(p.At) > 20*time.Second { // it may take longer to answer
			t.Fatalf("%+v", p)
		}
	}
}

// TestConnectCause makes each failure on a real socket and checks its cause, and words in
// one line that name the path.
func TestConnectCause(t *testing.T) {
	file := func(t *testing.T, path string) {
		must.Do(t, os.WriteFile(path, nil, 0o600))
	}
	for name, tt := range map[string]struct {
		make   func(t *testing.T, path string)
		below  string // of the path
		cause  facts.Cause
		detail string
	}{
		"a listener":     {listen(5, 0), "", facts.CauseNone, ""},
		"nothing":        {func(*testing.T, string) {}, "", facts.CauseMissing, "no such file"},
		"below a file":   {file, "/s", facts.CauseMissing, ""},
		"a stale socket": {func(t *testing.T, path string) { evidencetest.ListenAt(t, path, 5).Close() }, "", facts.CauseRefused, "nobody listens"},
		"a regular file": {file, "", facts.CauseNotSocket, "not a socket"},
		"a datagram socket": {func(t *testing.T, path string) {
			c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
			must.Do(t, err)
			t.Cleanup(func() { _ = c.Close() })
		}, "", facts.CauseNotSocket, "another type"},
		"a full queue": {listen(0, 1), "", facts.CauseQueueFull, "EAGAIN"},
		"links in a circle": {func(t *testing.T, path string) {
			must.Do(t, os.Symlink(path, path))
		}, "", facts.CauseNotSocket, "in a circle"},
	} {
		path := evidencetest.SocketPath(t)
		tt.make(t, path)
		_, err := (&net.Dialer{}).DialContext(t.Context(), "unix", path+tt.below)
		cause, detail := ConnectCause(err, path+tt.below)
		named := cause == facts.CauseNone || strings.Contains(detail, path)
		if cause != tt.cause || !strings.Contains(detail, tt.detail) || strings.Contains(detail, "\n") || !named {
			t.Errorf("%s: %v: cause %q (%s), want %q (%s)", name, err, cause, detail, tt.cause, tt.detail)
		}
	}
	for err, want := range map[error]facts.Cause{
		context.DeadlineExceeded: facts.CauseTimeout, os.ErrDeadlineExceeded: facts.CauseTimeout, errors.New("strange"): facts.CauseError,
		syscall.EACCES: facts.CausePermissionDenied, syscall.EPERM: facts.CausePermissionDenied,
	} {
		if cause, detail := ConnectCause(err, "/s"); cause != want || detail == "" {
			t.Errorf("%v: cause %q, %q", err, cause, detail)
		}
	}
}
