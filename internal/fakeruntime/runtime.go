package fakeruntime

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// DefaultMaxSendMsgSize is the largest message that containerd sends, in bytes.
// CRI-O's limit is 80 MiB.
const DefaultMaxSendMsgSize = 16 << 20

// Options are what a Runtime is made with. The zero value is a runtime like
// containerd, empty.
type Options struct {
	// Seed determines ids, the order of answers and which pods churn.
	Seed uint64
	// MaxSendMsgSize is the server's limit in bytes; 0 is DefaultMaxSendMsgSize.
	// A larger message is refused by gRPC itself: "trying to send message larger
	// than max (N vs. 16777216)".
	MaxSendMsgSize int
	// OnlyV1Alpha2 serves runtime.v1alpha2 and not runtime.v1: an old runtime.
	OnlyV1Alpha2 bool
	// CRIO puts cmux in front of the server, as CRI-O does (see serveThroughCmux).
	CRIO bool
}

// Runtime is the fake runtime: a Model, and a server that can be started,
// stopped and made to fail. Make it with New.
type Runtime struct {
	*Model

	opts   Options
	inject *injector
	sock   *socketFaults
	calls  callCounter
	memory memory

	mu     sync.Mutex
	path   string // of the unix socket; empty in memory
	server *running
}

// running is one life of the server.
type running struct {
	grpc     *grpc.Server
	listener *faultListener
	done     chan struct{}
}

// New makes a runtime that nobody can reach yet: dialling it fails with ENOENT.
// Start or Listen serve it.
func New(opts Options) *Runtime {
	if opts.MaxSendMsgSize == 0 {
		opts.MaxSendMsgSize = DefaultMaxSendMsgSize
	}
	r := &Runtime{
		Model:  newModel(opts.Seed),
		opts:   opts,
		inject: newInjector(),
		sock:   newSocketFaults(),
		memory: memory{name: "/run/fakeruntime/fakeruntime.sock", failure: syscall.ENOENT},
	}
	if opts.CRIO {
		r.SetVersion("cri-o", "1.37.0")
	}
	return r
}

// Start serves in memory; Dialer reaches it. It panics if the runtime is being
// served already.
func (r *Runtime) Start() {
	if err := r.serveAt(""); err != nil {
		panic(err)
	}
}

// Listen serves on a unix socket of mode 0600.
func (r *Runtime) Listen(path string) error { return r.serveAt(path) }

// Restart stops the server, if it runs, and serves again where it last served.
func (r *Runtime) Restart() error {
	r.Stop()
	r.mu.Lock()
	path := r.path
	r.mu.Unlock()
	return r.serveAt(path)
}

func (r *Runtime) serveAt(path string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.server != nil {
		return errors.New("fakeruntime: it is being served already")
	}
	if path == "" {
		r.path = ""
		r.serve(r.memory.listen())
		return nil
	}
	l, err := listenUnix(path)
	if err != nil {
		return err
	}
	r.path = path
	r.serve(l)
	return nil
}

// serve is called with the lock held.
func (r *Runtime) serve(base baseListener) {
	s := grpc.NewServer(
		grpc.MaxSendMsgSize(r.opts.MaxSendMsgSize),
		grpc.UnaryInterceptor(r.interceptUnary),
		grpc.StreamInterceptor(r.interceptStream),
		// Stop then leaves no goroutine behind.
		grpc.WaitForHandlers(true),
	)
	runtimeDesc, imageDesc := cri.RuntimeService_ServiceDesc, cri.ImageService_ServiceDesc
	if r.opts.OnlyV1Alpha2 {
		// The messages that matter are the same in both.
		runtimeDesc.ServiceName = "runtime.v1alpha2.RuntimeService"
		imageDesc.ServiceName = "runtime.v1alpha2.ImageService"
	}
	s.RegisterService(&runtimeDesc, &service{model: r.Model})
	s.RegisterService(&imageDesc, &imageService{})

	run := &running{grpc: s, done: make(chan struct{}), listener: newFaultListener(base, r.sock)}
	r.server = run
	go func() {
		defer close(run.done)
		if r.opts.CRIO {
			serveThroughCmux(s, run.listener)
			return
		}
		_ = s.Serve(run.listener) // it returns once Stop closes the listener
	}()
}

// Stop ends the server as SIGTERM ends a runtime: connections are cut, the socket
// is removed, and dialling fails with ENOENT. It waits for every goroutine of the
// server. The model, the failpoints and the counts stay. Stopping what does not
// run does nothing.
func (r *Runtime) Stop() { r.end(syscall.ENOENT) }

// Kill ends the server as SIGKILL ends a runtime: connections are cut, the socket
// stays behind, and dialling fails with ECONNREFUSED.
func (r *Runtime) Kill() { r.end(syscall.ECONNREFUSED) }

func (r *Runtime) end(failure syscall.Errno) {
	r.mu.Lock()
	defer r.mu.Unlock()
	run := r.server
	if run == nil {
		return
	}
	r.server = nil
	if unix, ok := run.listener.base.(*net.UnixListener); ok {
		unix.SetUnlinkOnClose(failure == syscall.ENOENT)
	} else {
		r.memory.gone(failure)
	}
	// gRPC's Stop waits for handshakes, and a silent or frozen connection is in one for
	// two minutes: cut them once no new connection can come.
	_ = run.listener.Close()
	<-run.listener.pumped
	r.sock.closeAll()
	run.grpc.Stop()
	<-run.done
	run.listener.wait()
}

// Dialer returns a function that connects to the runtime wherever it is served
// at that moment, and that fails, while it is not, as a dial of a unix socket
// does: with ENOENT before Start and after Stop, ECONNREFUSED after Kill, EAGAIN
// when the accept queue is full.
func (r *Runtime) Dialer() func(ctx context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) { return r.DialContext(ctx, "") }
}

// DialContext is the Dialer for grpc.WithContextDialer; the address is ignored.
func (r *Runtime) DialContext(ctx context.Context, _ string) (net.Conn, error) {
	r.mu.Lock()
	path := r.path
	r.mu.Unlock()
	if path == "" {
		return r.memory.dial(ctx)
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", path)
}

// SetDialError makes every dial in memory fail with an error, as in
// SetDialError(syscall.EACCES), until it is set to nil.
func (r *Runtime) SetDialError(err error) { r.memory.force(err) }

// Dials returns how often the runtime was dialled in memory, failed dials included.
func (r *Runtime) Dials() int { return r.memory.dialed() }

// Accepted returns how many connections were accepted since New, and how many of
// them are open.
func (r *Runtime) Accepted() (total, open int) { return r.sock.counts() }

// SetFailpoints puts failpoints in the place of all there are, those of the
// socket included; see ParseFailpoints. Calls that hang meet the new ones.
// Connections that nosettings, settingsonly or garbage holds are closed when that
// fault changes; of the socket's faults only freeze affects connections that gRPC
// has.
func (r *Runtime) SetFailpoints(spec string) error {
	f, err := ParseFailpoints(spec)
	if err != nil {
		return err
	}
	all := r.inject.current()
	for rpc := range all {
		all[rpc] = nil
	}
	maps.Copy(all, f)
	r.inject.set(all)
	r.sock.set(f[Socket])
	return nil
}

// Failpoints returns the remaining failpoints.
func (r *Runtime) Failpoints() Failpoints {
	f := r.inject.current()
	if terms := r.sock.current(); !slices.Equal(terms, []Term{off}) {
		f[Socket] = terms
	}
	return f
}

// Set puts terms in place of one failpoint, that of a call by its name, AnyRPC or
// Socket; without terms it takes the failpoint away. Calls that hang at another
// one continue to hang. It panics where ParseFailpoints would fail.
func (r *Runtime) Set(rpc string, terms ...Term) {
	if err := validate(rpc, terms); err != nil {
		panic("fakeruntime: " + err.Error())
	}
	if rpc == Socket {
		r.sock.set(terms)
		return
	}
	r.inject.set(Failpoints{rpc: terms})
}

// SetHook calls a function for every call of an RPC (by its name, not AnyRPC),
// until it is set to nil.
func (r *Runtime) SetHook(rpc string, h Hook) { r.inject.setHook(rpc, h) }
