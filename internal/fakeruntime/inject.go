package fakeruntime

import (
	"context"
	"path"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// injector holds the failpoints of the calls and applies them in interceptors,
// so that no handler knows of them.
type injector struct {
	mu      sync.Mutex
	points  map[string]*point
	hooks   map[string]Hook
	changed chan struct{} // closed and replaced with every change
}

// point is a failpoint as far as it has been used up.
type point struct{ terms []Term }

// Hook is called for every call of an RPC before its failpoint, with the request
// (nil for a streaming call). An error is the answer. It must return when the
// context ends, or Stop waits for it.
type Hook func(ctx context.Context, req any) error

func newInjector() *injector {
	return &injector{points: make(map[string]*point), hooks: make(map[string]Hook), changed: make(chan struct{})}
}

// set changes the failpoints of some calls; one without terms is removed.
func (in *injector) set(f Failpoints) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for rpc, terms := range f {
		delete(in.points, rpc)
		if rpc != Socket && len(terms) > 0 {
			in.points[rpc] = &point{terms: slices.Clone(terms)}
		}
	}
	close(in.changed)
	in.changed = make(chan struct{})
}

// current returns the remaining failpoints.
func (in *injector) current() Failpoints {
	in.mu.Lock()
	defer in.mu.Unlock()
	f := make(Failpoints, len(in.points))
	for rpc, p := range in.points {
		f[rpc] = slices.Clone(p.terms)
	}
	return f
}

func (in *injector) setHook(rpc string, h Hook) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.hooks[rpc] = h
}

func (in *injector) hook(rpc string) Hook {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.hooks[rpc]
}

// lookup returns the failpoint that a call meets, nil if none.
func (in *injector) lookup(rpc string) *point {
	if p, ok := in.points[rpc]; ok {
		return p
	}
	return in.points[AnyRPC]
}

// take uses up one application of the call's failpoint.
func (in *injector) take(rpc string) (*point, Term) {
	in.mu.Lock()
	defer in.mu.Unlock()
	p := in.lookup(rpc)
	if p == nil {
		return nil, off
	}
	return p, useUp(&p.terms)
}

// useUp returns the term at the head and counts it down. A list whose last
// counted term is used up becomes off.
func useUp(terms *[]Term) Term {
	t := (*terms)[0]
	switch {
	case t.count > 1:
		(*terms)[0].count--
	case t.count == 1 && len(*terms) > 1:
		*terms = (*terms)[1:]
	case t.count == 1:
		*terms = []Term{off}
	}
	t.count = 0
	return t
}

// outlived waits until the call meets another failpoint than p, or its context
// ends.
func (in *injector) outlived(ctx context.Context, rpc string, p *point) error {
	for {
		in.mu.Lock()
		changed, same := in.changed, in.lookup(rpc) == p
		in.mu.Unlock()
		if !same {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// failpointPanic is what the failpoint panics with, to be told from a mistake in
// a test's hook.
type failpointPanic struct{ rpc string }

// enter applies hook and failpoint before a call's handler runs: it returns an error
// as the answer, or the term that changes the answer.
func (in *injector) enter(ctx context.Context, rpc string, req any) (Term, error) {
	if h := in.hook(rpc); h != nil {
		if err := h(ctx, req); err != nil {
			return off, err
		}
	}
	for {
		p, t := in.take(rpc)
		switch t.kind {
		case kindError:
			message := t.text
			if message == "" {
				message = "failpoint"
			}
			return off, status.Error(t.code, message)
		case kindDelay:
			timer := time.NewTimer(t.pause)
			defer timer.Stop()
			select {
			case <-timer.C:
				return off, nil
			case <-ctx.Done():
				return off, status.FromContextError(ctx.Err()).Err()
			}
		case kindHang:
			if err := in.outlived(ctx, rpc, p); err != nil {
				return off, err
			}
		case kindPanic:
			panic(failpointPanic{rpc})
		default:
			return t, nil
		}
	}
}

// intercept is around every call: it counts, refuses what would write, turns the
// failpoint's panic into the death of all connections, and injects.
func (r *Runtime) intercept(ctx context.Context, fullMethod string, req any, handle func(Term) error) (err error) {
	rpc := path.Base(fullMethod)
	defer r.calls.begin(rpc)()
	if writeCall(rpc) {
		r.calls.wrote(rpc)
		return status.Errorf(codes.PermissionDenied, "fakeruntime: %s would change the runtime; it is read only", rpc)
	}
	defer func() {
		switch v := recover().(type) {
		case nil:
		case failpointPanic:
			r.sock.closeAll()
			err = status.Errorf(codes.Unavailable, "fakeruntime: panic in %s", v.rpc)
		default:
			panic(v)
		}
	}()
	t, err := r.inject.enter(ctx, rpc, req)
	if err != nil {
		return err
	}
	return handle(t)
}

func (r *Runtime) interceptUnary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (resp any, err error) {
	err = r.intercept(ctx, info.FullMethod, req, func(t Term) error {
		var err error
		resp, err = handler(ctx, req)
		if err == nil {
			resp = changeAnswer(t, resp.(proto.Message))
		}
		return err
	})
	return resp, err
}

func (r *Runtime) interceptStream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	return r.intercept(stream.Context(), info.FullMethod, nil, func(t Term) error {
		if t.kind == kindEmpty {
			return nil
		}
		return handler(srv, stream)
	})
}
