package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/plegd/plegd/internal/server"
)

const (
	// askTime bounds one question.
	askTime = 3 * time.Second
	// answerBytes bounds one answer.
	answerBytes = 8 << 20
)

// get asks an HTTP server on a unix socket for a path.
func get(ctx context.Context, socket, path string) ([]byte, error) {
	if _, err := os.Stat(socket); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	tr := server.UnixTransport(socket)
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://bundle"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", socket, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, answerBytes))
	if err == nil && resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", socket, resp.Status)
	}
	return b, err
}

// question is a path of a server on a unix socket, and the file for its answer.
type question struct{ socket, path, file string }

// Metrics is the part of plegd's own metrics.
func Metrics(controlSocket string) Part {
	return Part{Name: "metrics", Gather: func(ctx context.Context, add Add) error {
		return ask(ctx, add, question{controlSocket, "/metrics", "plegd/metrics.txt"})
	}}
}

// Stacks is the part of the runtime's goroutine stacks, where it serves them
// read-only: CRI-O on its own socket, containerd on a configured debug socket,
// dockerd in its debug mode. None of these calls changes anything. The runtime's
// socket is asked for CRI-O only: another runtime takes HTTP/1.1 for an error.
func Stacks(runtimeSocket, runtimeName, dockerSocket string) Part {
	return Part{Name: "goroutine stacks", Time: 3 * askTime, Gather: func(ctx context.Context, add Add) error {
		var questions []question
		if runtimeName == "cri-o" {
			questions = append(questions, question{runtimeSocket, "/debug/goroutines", "stacks/crio.txt"}, question{runtimeSocket, "/info", "stacks/crio-info.json"})
		}
		questions = append(questions, question{"/run/containerd/debug.sock", "/debug/pprof/goroutine?debug=2", "stacks/containerd.txt"})
		if dockerSocket != "" {
			questions = append(questions, question{dockerSocket, "/debug/pprof/goroutine?debug=2", "stacks/dockerd.txt"})
		}
		return ask(ctx, add, questions...)
	}}
}

// ask asks every question and joins what went wrong. A socket that is not there
// serves nothing, which is no error.
func ask(ctx context.Context, add Add, questions ...question) error {
	var errs []error
	for _, q := range questions {
		b, err := get(ctx, q.socket, q.path)
		switch {
		case err == nil:
			add(q.file, b, 2*partBytes)
		case !errors.Is(err, os.ErrNotExist):
			errs = append(errs, fmt.Errorf("%s: %w", q.path, err))
		}
	}
	return errors.Join(errs...)
}
