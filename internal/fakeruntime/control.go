package fakeruntime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
)

// controlSuffix makes of a simulated runtime's socket that of its failpoints.
const controlSuffix = ".failpoints"

// maxSpec is the longest specification taken over the control socket, in bytes.
const maxSpec = 64 << 10

// ControlSocket returns the path of the socket over which the failpoints of the
// runtime that Simulate serves at a path are read and changed: HTTP with GET and
// PUT /failpoints, the body being the specification. Its mode is 0600.
func ControlSocket(socket string) string { return socket + controlSuffix }

func controlHandler(rt *Runtime, say *log.Logger) http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = fmt.Fprintln(w, rt.Failpoints())
	}
	mux.HandleFunc("GET /failpoints", func(w http.ResponseWriter, _ *http.Request) { answer(w) })
	mux.HandleFunc("PUT /failpoints", func(w http.ResponseWriter, req *http.Request) {
		spec, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxSpec))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := rt.SetFailpoints(strings.TrimSpace(string(spec))); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		say.Printf("failpoints: %s", orNone(rt.Failpoints()))
		answer(w)
	})
	return mux
}

// ReadFailpoints asks the runtime that Simulate serves at a path for its active
// failpoints.
func ReadFailpoints(ctx context.Context, socket string) (string, error) {
	return control(ctx, socket, http.MethodGet, "")
}

// WriteFailpoints sets the failpoints of the runtime that Simulate serves at a
// path, in the place of all there are, and returns what stands then.
func WriteFailpoints(ctx context.Context, socket, spec string) (string, error) {
	return control(ctx, socket, http.MethodPut, spec)
}

func control(ctx context.Context, socket, method, body string) (string, error) {
	path := ControlSocket(socket)
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, "http://simulate/failpoints", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return "", fmt.Errorf("--socket %s: reach its failpoints: %w; is plegd simulate running there?",
			socket, errors.Unwrap(err))
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 2*maxSpec))
	if err != nil {
		return "", fmt.Errorf("--socket %s: read the answer: %w", socket, err)
	}
	answer := strings.TrimSpace(string(text))
	if resp.StatusCode != http.StatusOK {
		return "", errors.New(answer)
	}
	return answer, nil
}
