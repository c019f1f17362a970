package cri

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestBackWithTheRuntime: the first call after the runtime's return succeeds at
// once, however long it was away and however many calls have failed meanwhile.
// gRPC's own backoff would hold it back for seconds.
func TestBackWithTheRuntime(t *testing.T) {
	for _, tt := range []struct {
		name  string
		end   func(*fakeruntime.Runtime)
		errno error
	}{
		{"socket gone", (*fakeruntime.Runtime).Stop, syscall.ENOENT},
		{"nobody listens", (*fakeruntime.Runtime).Kill, syscall.ECONNREFUSED},
	} {
		for _, away := range []int{1, 30} {
			t.Run(tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					rt := serve(t, fakeruntime.Options{})
					c, seen := clientOf(t, rt, Options{})
					if _, err := c.ListContainers(t.Context()); err != nil {
						t.Fatal(err)
					}
					tt.end(rt)
					synctest.Wait() // the connection is lost
					for i := range away {
						_, err := c.ListContainers(t.Context())
						if e := failure(t, err); e.Code != CodeUnavailable || seen.last(t).Duration != 0 {
							t.Fatalf("call %d of a stopped runtime: %+v after %v; want Unavailable at once", i, *e, seen.last(t).Duration)
						}
						if dial := c.LastDial(); !errors.Is(dial.Err, tt.errno) || !dial.At.Equal(time.Now()) {
							t.Fatalf("call %d: last dial %+v; want %v, by this call", i, *dial, tt.errno)
						}
						if i+1 < away {
							time.Sleep(time.Second)
						}
					}
					must.Do(t, rt.Restart())
					// gRPC tells a call of a failure before the connection's state says
					// so: microseconds, in which the next call would still find it up.
					synctest.Wait()
					if _, err := c.ListContainers(t.Context()); err != nil || seen.last(t).Duration != 0 {
						t.Errorf("the next call: %v after %v, want success at once", err, seen.last(t).Duration)
					}
					if dial := c.LastDial(); dial.Err != nil {
						t.Errorf("last dial %+v", *dial)
					}
				})
			})
		}
	}
}

// TestHeldConnection: making a client touches nothing, hours without a call do not close
// the connection, and a restart between two calls goes unnoticed.
func TestHeldConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := serve(t, fakeruntime.Options{})
		c, _ := clientOf(t, rt, Options{})
		for want := range 6 {
			time.Sleep(5 * time.Hour)
			if n := rt.Dials(); n != want || want == 0 && c.LastDial() != nil {
				t.Errorf("%d connections, want %d", n, want)
			}
			if want > 0 {
				must.Do(t, rt.Restart())
				synctest.Wait()
			}
			for range 2 {
				if _, err := c.Version(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Hour)
			}
		}
	})
}

// stuck are the ways in which a runtime leaves a connection without an answer.
func stuck() map[string]fakeruntime.Term {
	return map[string]fakeruntime.Term{"noaccept": fakeruntime.NoAccept(), "nosettings": fakeruntime.NoSettings(), "freeze": fakeruntime.Freeze()}
}

// TestOneConnectionToAStuckRuntime: however many calls fail, they wait for one
// connection. Each further one would stay in the accept queue after its end.
func TestOneConnectionToAStuckRuntime(t *testing.T) {
	for name, fault := range stuck() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := serve(t, fakeruntime.Options{})
				rt.Set(fakeruntime.Socket, fault)
				c, seen := clientOf(t, rt, Options{})
				for range 58 {
					_, err := c.Version(within(t, time.Second))
					if e := failure(t, err); e.Code != CodeDeadlineExceeded || seen.last(t).Duration != time.Second {
						t.Fatalf("%+v after %v, want DeadlineExceeded after 1s", *e, seen.last(t).Duration)
					}
					time.Sleep(time.Second)
				}
				check.Equal(t, rt.Dials(), 1, "connections in 116 s")
				if dial := c.LastDial(); dial == nil || dial.Err != nil {
					t.Errorf("last dial %+v, want a good one", dial)
				}

				// The next call is under way when the runtime wakes.
				time.AfterFunc(700*time.Millisecond, func() { rt.Set(fakeruntime.Socket) })
				if _, err := c.Version(within(t, time.Second)); name == "nosettings" {
					// The fake runtime ends a connection that it has refused to speak
					// on, so this one comes to nothing, and the next one succeeds.
					if err == nil {
						t.Error("nosettings: the call succeeded on a connection that was closed")
					}
				} else if err != nil || seen.last(t).Duration != 700*time.Millisecond {
					t.Errorf("when it wakes: %v after %v, want success after 700ms", err, seen.last(t).Duration)
				}
				synctest.Wait() // gRPC fails a call a moment before its connection counts as failed
				if _, err := c.Version(within(t, time.Second)); err != nil || seen.last(t).Duration != 0 {
					t.Errorf("afterwards: %v after %v", err, seen.last(t).Duration)
				}
				want := 1
				if name == "nosettings" {
					want = 2
				}
				check.Equal(t, rt.Dials(), want, "connections at the end")
			})
		})
	}
}

// TestFrozenInTheMiddle: a runtime that is stopped while a call is under way
// keeps its connection, and answers on it when it continues.
func TestFrozenInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := serve(t, fakeruntime.Options{})
		c, seen := clientOf(t, rt, Options{})
		if _, err := c.Version(t.Context()); err != nil {
			t.Fatal(err)
		}
		rt.Set(fakeruntime.Socket, fakeruntime.Freeze())
		for range 10 {
			_, err := c.Version(within(t, time.Second))
			if failure(t, err).Code != CodeDeadlineExceeded {
				t.Fatal(err)
			}
		}
		time.AfterFunc(90*time.Second, func() { rt.Set(fakeruntime.Socket) })
		if _, err := c.Version(t.Context()); err != nil || seen.last(t).Duration != 90*time.Second {
			t.Errorf("%v after %v, want success after 90s", err, seen.last(t).Duration)
		}
		check.Equal(t, rt.Dials(), 1, "connections")
	})
}

// TestBehindCmux: CRI-O serves only who speaks first, with the content type
// "application/grpc" and no other. Every call must pass.
func TestBehindCmux(t *testing.T) {
	rt := serve(t, fakeruntime.Options{CRIO: true, MaxSendMsgSize: 64 << 20})
	rt.FillPods(3, 2)
	open := func(t *testing.T) *Client {
		c, _ := clientOf(t, rt, Options{}) // the first call of a connection decides
		return c
	}
	list, err := open(t).ListContainers(within(t, 10*time.Second))
	if err != nil || len(list) != 6 {
		t.Fatalf("%d containers, %v", len(list), err)
	}
	for _, op := range []string{OpVersion, OpStatus, OpListPodSandbox, OpListContainers, OpPodSandboxStatus, OpContainerStatus} {
		t.Run(op, func(t *testing.T) {
			check.NoError(t, calls(open(t), list[0].SandboxID, list[0].ID)[op](within(t, 10*time.Second)), "%s", op)
		})
	}
	t.Run("pod lists", func(t *testing.T) {
		if _, _, err := open(t).PodLists(within(t, 10*time.Second), "none"); err != nil {
			t.Error(err)
		}
	})
	t.Run("events", func(t *testing.T) {
		if end, err := open(t).ContainerEvents(within(t, 10*time.Second), 200*time.Millisecond, func(EventType, string) {}); end != StreamLeaseOver {
			t.Errorf("the stream ended with %d, %v", end, err)
		}
	})
}

// TestCloseEndsWhatHangs: calls in flight end at once, at any stage, and later ones
// fail.
func TestCloseEndsWhatHangs(t *testing.T) {
	for name, fault := range map[string]func(*fakeruntime.Runtime){
		"a call":       func(rt *fakeruntime.Runtime) { rt.Set("ContainerStatus", fakeruntime.Hang()) },
		"not accepted": func(rt *fakeruntime.Runtime) { rt.Set(fakeruntime.Socket, fakeruntime.NoAccept()) },
		"no settings":  func(rt *fakeruntime.Runtime) { rt.Set(fakeruntime.Socket, fakeruntime.NoSettings()) },
		"frozen":       func(rt *fakeruntime.Runtime) { rt.Set(fakeruntime.Socket, fakeruntime.Freeze()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := serve(t, fakeruntime.Options{})
				fault(rt)
				c, seen := clientOf(t, rt, Options{})
				ended := make(chan error, 3)
				for range 3 {
					go func() { ended <- c.StatusOf(t.Context(), &Entry{ID: "c"}) }()
				}
				time.Sleep(7 * time.Second)
				synctest.Wait()
				start := time.Now()
				must.Do(t, c.Close())
				for range 3 {
					check.Equal(t, failure(t, <-ended).Code, CodeCanceled, "a call under way")
				}
				check.Equal(t, time.Since(start), 0, "they ended after Close")
				if h := c.History(OpContainerStatus); !h.InFlightSince.IsZero() {
					t.Errorf("still in flight since %v", h.InFlightSince)
				}
				if got := seen.last(t); got.Code != CodeCanceled || got.Duration != 7*time.Second {
					t.Errorf("the observer was told %+v", got)
				}
				dials := rt.Dials()
				if _, err := c.Version(t.Context()); failure(t, err).Code != CodeCanceled {
					t.Errorf("a call after Close: %v, want Canceled", err)
				}
				check.NoError(t, c.Close(), "Close again")
				time.Sleep(time.Hour)
				check.Equal(t, rt.Dials(), dials, "connections an hour after Close")
			})
		})
	}
}

// TestGetOnlyReads: no page but those of the list reaches the runtime, and no redirect is
// followed.
func TestGetOnlyReads(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	l, err := net.Listen("unix", socket)
	must.Do(t, err)
	var reached []string
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached = append(reached, r.Method+" "+r.URL.String())
		if r.URL.Path == PageInfo {
			http.Redirect(w, r, "/pause/x", http.StatusFound)
			return
		}
		_, _ = w.Write([]byte("0123456789"))
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })

	for _, page := range []string{
		"/pause/x", "/unpause/x", "/debug/heap", "/debug/pprof/heap?debug=1", "/debug/pprof/goroutine", "/containers/x", "/config",
		"/debug/pprof/profile", "/info/../pause/x", "//pause/x", "http://other/info", "",
	} {
		if _, err := Get(t.Context(), socket, page, 100); err == nil || !strings.Contains(err.Error(), "plegd only reads") {
			t.Errorf("%q: %v", page, err)
		}
	}
	if len(reached) > 0 {
		t.Errorf("pages that reached the runtime: %q", reached)
	}
	for _, page := range []string{PageGoroutines, PageGoroutinesCRIO} {
		text, err := Get(t.Context(), socket, page, 4)
		if err != nil || string(text) != "0123" {
			t.Errorf("%s: %q, %v; want the first 4 bytes", page, text, err)
		}
	}
	if _, err := Get(t.Context(), socket, PageInfo, 100); err == nil || len(reached) != 3 || reached[2] != "GET /info" {
		t.Errorf("a redirect: %v, %q", err, reached)
	}
	other, err := net.Listen("unix", filepath.Join(t.TempDir(), "g.sock"))
	must.Do(t, err)
	t.Cleanup(func() { _ = other.Close() })
	go func() {
		conn, err := other.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = http.ReadRequest(bufio.NewReader(conn))
		_, _ = conn.Write([]byte("\x00\x00\x06\x04\x00\x00\x00\x00\x00\n")) // SETTINGS of HTTP/2
	}()
	if _, err := Get(t.Context(), other.Addr().String(), PageInfo, 100); !errors.Is(err, errNotHTTP) {
		t.Errorf("a server that speaks gRPC alone: %v", err)
	}
}

// TestGetTrustsRootAlone: a file, and a socket of another user, are not asked.
func TestGetTrustsRootAlone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	others := filepath.Join(dir, "others.sock")
	l, err := net.Listen("unix", others)
	must.Do(t, err)
	t.Cleanup(func() { _ = l.Close() })
	if err := os.Chown(others, 65534, -1); err != nil {
		t.Skip(err)
	}
	for path, want := range map[string]string{file: "not a socket", others: "does not belong to root", filepath.Join(dir, "none"): "no such file"} {
		if _, err := Get(t.Context(), path, PageInfo, 100); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
