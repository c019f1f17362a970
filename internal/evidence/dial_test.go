package evidence_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/evidence"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/internal/health"
)

const (
	period  = 2 * time.Second
	timeout = time.Second
)

// probes is a Dialer with everything that it tells.
type probes struct {
	*evidence.Dialer

	mu    sync.Mutex
	done  []health.Probe
	calls []cri.Call
	stop  func()
}

func (p *probes) CallDone(c cri.Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, c)
}

func (p *probes) told() []health.Probe {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.done)
}

// probe runs a Dialer on a runtime until the test ends.
func probe(t *testing.T, opts evidence.DialOptions) *probes {
	t.Helper()
	p := &probes{}
	if opts.Path == nil {
		opts.Path = func() string { return "/run/fakeruntime/fakeruntime.sock" }
	}
	if opts.Period == 0 {
		opts.Period = period
	}
	if opts.Timeout == 0 {
		opts.Timeout = timeout
	}
	opts.Observer = p
	opts.Done = func(d health.Probe) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.done = append(p.done, d)
	}
	p.Dialer = evidence.NewDialer(opts)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
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

// TestDialSucceeds: the stages' times, the runtime's version, and a probe every
// period.
func TestDialSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := serve(t, fakeruntime.Options{})
		rt.SetVersion("containerd", "2.4.2")
		rt.Set("Version", fakeruntime.Delay(300*time.Millisecond))
		rt.Set(fakeruntime.Socket, fakeruntime.NoAccept())
		time.AfterFunc(200*time.Millisecond, func() { rt.Set(fakeruntime.Socket) })
		start := time.Now()
		p := probe(t, evidence.DialOptions{Dial: rt.Dialer()})
		if last := p.Last(); last != (health.Probe{}) || p.Version() != nil {
			t.Errorf("before the first probe: %+v, %v", last, p.Version())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		want := health.Probe{At: start, OK: true, Settings: 200 * time.Millisecond, RPC: 300 * time.Millisecond}
		if last := p.Last(); last != want {
			t.Errorf("%+v, want %+v", last, want)
		}
		if v := p.Version(); v == nil || *v != (cri.Version{RuntimeName: "containerd", RuntimeVersion: "2.4.2", RuntimeAPIVersion: "v1"}) {
			t.Errorf("version %+v", v)
		}
		time.Sleep(10 * time.Second) // one at 0, 2.5, 4.8, 7.1 and 9.4 s
		synctest.Wait()
		if told := p.told(); len(told) != 5 || told[0] != want || !told[4].At.Equal(start.Add(9400*time.Millisecond)) || told[4] != p.Last() {
			t.Errorf("%d results: %+v", len(told), told)
		}
		if n := rt.Dials(); n != 5 {
			t.Errorf("%d connections for 5 probes", n)
		}
		if _, open := rt.Accepted(); open != 0 {
			t.Errorf("%d connections are open between two probes", open)
		}
		p.stop()
		for _, c := range p.calls {
			if c.Operation != cri.OpVersion || c.Code != cri.CodeOK || c.Duration != 300*time.Millisecond {
				t.Errorf("the observer received %+v", c)
			}
		}
		if len(p.calls) != 5 || len(rt.WriteCalls()) > 0 {
			t.Errorf("%d calls, %v", len(p.calls), rt.WriteCalls())
		}
		if name := p.String(); name != "dial" {
			t.Errorf("the task is called %q", name)
		}
	})
}

// dialFaults are what a fresh connection may meet.
var dialFaults = []struct {
	name   string
	opts   fakeruntime.Options
	fault  func(*fakeruntime.Runtime)
	fix    func(*fakeruntime.Runtime)
	stage  health.Stage
	cause  health.Cause
	detail string
	within time.Duration // of the fix
}{
	{name: "gone", fault: (*fakeruntime.Runtime).Stop, fix: start, stage: health.StageConnect, cause: health.CauseMissing, detail: "no such file", within: 500 * time.Millisecond},
	{name: "killed", fault: (*fakeruntime.Runtime).Kill, fix: start, stage: health.StageConnect, cause: health.CauseRefused, detail: "nobody listens", within: 500 * time.Millisecond},
	{name: "forbidden", fault: func(rt *fakeruntime.Runtime) { rt.SetDialError(syscall.EACCES) }, fix: func(rt *fakeruntime.Runtime) { rt.SetDialError(nil) },
		stage: health.StageConnect, cause: health.CausePermissionDenied, detail: "permission denied", within: 500 * time.Millisecond},
	{name: "queue full", fault: func(rt *fakeruntime.Runtime) { rt.SetDialError(syscall.EAGAIN) }, fix: func(rt *fakeruntime.Runtime) { rt.SetDialError(nil) },
		stage: health.StageConnect, cause: health.CauseQueueFull, within: 500 * time.Millisecond},
	{name: "another type", fault: func(rt *fakeruntime.Runtime) { rt.SetDialError(syscall.EPROTOTYPE) }, fix: func(rt *fakeruntime.Runtime) { rt.SetDialError(nil) },
		stage: health.StageConnect, cause: health.CauseNotSocket, within: 500 * time.Millisecond},
	{name: "strange", fault: func(rt *fakeruntime.Runtime) { rt.SetDialError(syscall.EIO) }, fix: func(rt *fakeruntime.Runtime) { rt.SetDialError(nil) },
		stage: health.StageConnect, cause: health.CauseError, detail: "input/output error", within: 500 * time.Millisecond},
	{name: "not accepted", fault: socket(fakeruntime.NoAccept()), stage: health.StageSettings, cause: health.CauseTimeout},
	{name: "frozen", fault: socket(fakeruntime.Freeze()), stage: health.StageSettings, cause: health.CauseTimeout},
	// The fake runtime hangs up on the connection that waits, so the next one tells.
	{name: "no settings", fault: socket(fakeruntime.NoSettings()), stage: health.StageSettings, cause: health.CauseTimeout, within: period},
	// "hung up on" is in TestDialUnix: in memory the errors are not those of sockets.
	{name: "garbage", fault: socket(fakeruntime.Garbage()), stage: health.StageSettings, cause: health.CauseProtocol, within: period},
	{name: "settings and nothing more", fault: socket(fakeruntime.SettingsOnly()), stage: health.StageRPC, cause: health.CauseTimeout, within: 2 * period},
	{name: "no answer", fault: version(fakeruntime.Hang()), stage: health.StageRPC, cause: health.CauseTimeout, detail: "no answer to Version", within: period},
	{name: "recovering", fault: version(fakeruntime.Error(codes.Unknown, "server is not initialized yet")), stage: health.StageRPC, cause: health.CauseNotInitialized, detail: "not initialized", within: period},
	{name: "recovering, as containerd 2.x says it", fault: version(fakeruntime.Error(codes.Unavailable, "server is not initialized yet")), stage: health.StageRPC, cause: health.CauseNotInitialized, within: period},
	{name: "of another API", fault: version(fakeruntime.Error(codes.Unimplemented, "unknown service runtime.v1.RuntimeService")), stage: health.StageRPC, cause: health.CauseUnimplemented, within: period},
	{name: "a deadline inside", fault: version(fakeruntime.Error(codes.Unknown, "context deadline exceeded")), stage: health.StageRPC, cause: health.CauseTimeout, within: period},
	{name: "an error", fault: version(fakeruntime.Error(codes.Internal, "boom")), stage: health.StageRPC, cause: health.CauseError, detail: "boom", within: period},
	{name: "a broken answer", fault: version(fakeruntime.Garbage()), stage: health.StageRPC, cause: health.CauseError, within: period},
	{name: "dying of it", fault: version(fakeruntime.Panic()), stage: health.StageRPC, cause: health.CauseClosed, within: period},
}

// fixDial ends a fault, by its own fix where it has one.
func fixDial(rt *fakeruntime.Runtime, fix func(*fakeruntime.Runtime)) {
	if fix != nil {
		fix(rt)
		return
	}
	rt.Set(fakeruntime.Socket)
	rt.Set("Version")
}

// TestDialFailures: each fault has its stage and cause, and is gone when the
// fault is.
func TestDialFailures(t *testing.T) {
	for _, tt := range dialFaults {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := serve(t, tt.opts)
				tt.fault(rt)
				begin := time.Now()
				p := probe(t, evidence.DialOptions{Dial: rt.Dialer()})
				time.Sleep(10*time.Second + 100*time.Millisecond)
				synctest.Wait()
				last := p.Last()
				if last.OK || last.Stage != tt.stage || last.Cause != tt.cause || !strings.Contains(last.Detail, tt.detail) || strings.Contains(last.Detail, "\n") {
					t.Errorf("%+v, want %s and %s (%s)", last, tt.stage, tt.cause, tt.detail)
				}
				if !last.FailedSince.Equal(begin) || last.Failures != len(p.told()) {
					t.Errorf("%d failures since %v, %d results since %v", last.Failures, last.FailedSince, len(p.told()), begin)
				}
				for i, d := range p.told() {
					if d.Stage != tt.stage || d.Cause != tt.cause || d.OK || d.Failures != i+1 || !d.FailedSince.Equal(begin) {
						t.Errorf("result %+v", d)
					}
				}

				fixDial(rt, tt.fix)
				fixed := time.Now()
				for time.Since(fixed) < tt.within && !p.Last().OK {
					time.Sleep(50 * time.Millisecond)
					synctest.Wait()
				}
				synctest.Wait()
				if last := p.Last(); !last.OK || last.Stage != "" || last.Cause != health.CauseNone || last.Detail != "" || !last.FailedSince.IsZero() || last.Failures != 0 {
					t.Errorf("%v after it was fixed: %+v", time.Since(fixed), last)
				}
				// Later failures are counted from 1.
				tt.fault(rt)
				time.Sleep(5 * time.Second)
				synctest.Wait()
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

// TestDialSpeaksFirst: CRI-O, which answers only then, is well.
func TestDialSpeaksFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := probe(t, evidence.DialOptions{Dial: serve(t, fakeruntime.Options{CRIO: true}).Dialer()})
		time.Sleep(time.Minute)
		synctest.Wait()
		told := p.told()
		if len(told) != 31 || slices.ContainsFunc(told, func(d health.Probe) bool { return !d.OK }) {
			t.Errorf("%d probes in a minute: %+v", len(told), told)
		}
	})
}
