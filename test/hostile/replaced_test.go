//go:build e2e

package hostile

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/lab"
)

func running(n int) func(lab.Status) bool {
	return func(s lab.Status) bool { return s.LastSeen != nil && s.Pods.Running == n }
}

// TestReplaced: another runtime takes the path while the first one lives on, and then the
// first one dies.
func TestReplaced(t *testing.T) {
	countAttack(t, identity)
	t.Parallel()
	first, socket := serve(t, fakeruntime.Options{Seed: 1}, 20)
	p := start(t, socket, lab.PlegdOptions{})
	p.awaitReason()
	p.await("the first runtime's pods", running(20))
	lab.Must(t, os.Remove(socket))
	second := serveAt(t, socket, fakeruntime.Options{Seed: 2}, 7)
	second.SetVersion("another", "9.9")
	// The held connection is the first one's, as the kubelet's is.
	if s := p.relists(20); s.State != "healthy" || !running(20)(s) {
		t.Errorf("with the held connection answered it is %s", describe(s))
	}
	first.Kill() // it must not take the second one's socket along
	p.await("the second runtime's pods", running(7))
	p.awaitReason()
	p.await("the second runtime's name", func(s lab.Status) bool { return s.Runtime.Name == "another" })
}

// TestFloods: what listens speaks HTTP/2 well enough to begin with, and then does
// not stop.
func TestFloods(t *testing.T) {
	chunk := make([]byte, 16<<10)
	for name, flood := range map[string]func(f *http2.Framer, stream uint32) error{
		"pings":                            func(f *http2.Framer, _ uint32) error { return f.WritePing(false, [8]byte{}) },
		"frames of no type":                func(f *http2.Framer, _ uint32) error { return f.WriteRawFrame(0x77, 0, 0, chunk) },
		"an answer that says it has 4 GiB": answer(append([]byte{0, 0xff, 0xff, 0xff, 0xff}, chunk...)),
		"an endless answer of 16 MiB":      answer(append([]byte{0, 1, 0, 0, 0}, chunk...)),
		"answers of nothing":               answer(make([]byte, 10)),
		"headers without end": func(f *http2.Framer, stream uint32) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: header("x-"+forged, strings.Repeat("y", 1000)), EndHeaders: false})
		},
		"half the preface": func(*http2.Framer, uint32) error { time.Sleep(time.Second); return nil },
		"go away": func(f *http2.Framer, stream uint32) error {
			return f.WriteGoAway(stream, http2.ErrCodeNo, []byte(evil[0]))
		},
		"resets": func(f *http2.Framer, stream uint32) error {
			return f.WriteRSTStream(stream, http2.ErrCodeEnhanceYourCalm)
		},
	} {
		t.Run(name, func(t *testing.T) {
			countAttack(t, lists)
			t.Parallel()
			socket := listenFlood(t, flood)
			p := start(t, socket, lab.PlegdOptions{})
			for range 2 {
				s := p.await("a reason", func(s lab.Status) bool { return s.Reason != "" && s.Reason != "Starting" })
				if s.State == "healthy" || s.LastSeen != nil {
					t.Errorf("a runtime that never answers is %s", describe(s))
				}
				time.Sleep(2 * time.Second)
			}
		})
	}
}

func header(name, value string) []byte {
	var b strings.Builder
	e := hpack.NewEncoder(&b)
	for _, f := range []hpack.HeaderField{{Name: ":status", Value: "200"}, {Name: "content-type", Value: "application/grpc"}, {Name: strings.ToLower(name), Value: value}} {
		_ = e.WriteField(f)
	}
	return []byte(b.String())
}

// answer begins an answer and continues with the same data for ever.
func answer(data []byte) func(f *http2.Framer, stream uint32) error {
	return func(f *http2.Framer, stream uint32) error {
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: header("a", "b"), EndHeaders: true}); err != nil {
			return err
		}
		for {
			for rest := data; len(rest) > 0; {
				n := min(len(rest), 16<<10)
				if err := f.WriteData(stream, false, rest[:n]); err != nil {
					return err
				}
				rest = rest[n:]
			}
		}
	}
}

// listenFlood floods each connection once its first call has come.
func listenFlood(t *testing.T, flood func(f *http2.Framer, stream uint32) error) string {
	t.Helper()
	path := filepath.Join(lab.Dir(t), "flood.sock")
	l, err := net.Listen("unix", path)
	lab.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
					return
				}
				f := http2.NewFramer(c, c)
				if f.WriteSettings() != nil {
					return
				}
				for {
					frame, err := f.ReadFrame()
					if err != nil {
						return
					}
					if h, ok := frame.(*http2.HeadersFrame); ok {
						go func() { _, _ = io.Copy(io.Discard, c) }()
						for flood(f, h.StreamID) == nil {
						}
						return
					}
				}
			}()
		}
	}()
	return path
}
