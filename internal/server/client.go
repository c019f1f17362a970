package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/plain"
	"github.com/plegd/plegd/internal/view"
)

const (
	// fetchTimeout bounds a question over the control socket. The daemon
	// answers from memory; one that takes longer is stopped or stuck.
	fetchTimeout = 3 * time.Second
	// maxAnswer bounds what is read of an answer, in bytes.
	maxAnswer = 8 << 20
)

// ErrNoDaemon is wrapped by the errors of FetchStatus that mean that no plegd
// runs behind the control socket, as opposed to one that may not be asked or
// does not answer.
var ErrNoDaemon = errors.New("no plegd runs here")

// ErrNoAnswer is wrapped by the errors of a daemon that does not answer in time.
var ErrNoAnswer = errors.New("no answer")

// noDaemonError is an ErrNoDaemon that says how it came to be known.
type noDaemonError string

func (e noDaemonError) Error() string { return string(e) }

func (e noDaemonError) Is(target error) bool { return target == ErrNoDaemon }

// FetchStatus asks the running daemon for its status over the control socket.
// It waits for at most 3 s, or for ctx.
func FetchStatus(ctx context.Context, controlSocketPath string) (*health.Snapshot, error) {
	var s health.Snapshot
	if err := fetch(ctx, controlSocketPath, view.PathStatus, &s); err != nil {
		return nil, fmt.Errorf("asking plegd for its status: %w", err)
	}
	if s.SchemaVersion != health.SchemaVersion {
		return nil, fmt.Errorf("asking plegd for its status: it answers in version %d of the document and this command reads %d; restart plegd, or use the command of its version (%s)",
			s.SchemaVersion, health.SchemaVersion, plain.Text(s.PlegdVersion))
	}
	return &s, nil
}

// FetchIncidents asks the running daemon for the heads of its incidents, newest
// first.
func FetchIncidents(ctx context.Context, controlSocketPath string) ([]incident.Summary, error) {
	var list []incident.Summary
	if err := fetch(ctx, controlSocketPath, view.PathIncidents, &list); err != nil {
		return nil, fmt.Errorf("asking plegd for its incidents: %w", err)
	}
	return list, nil
}

// FetchIncident asks the running daemon for one incident. The error wraps
// incident.ErrUnknown where it has none of this id.
func FetchIncident(ctx context.Context, controlSocketPath, id string) (*incident.Incident, error) {
	if !incident.ValidID(id) {
		return nil, fmt.Errorf("%.40q: %w", id, incident.ErrUnknown)
	}
	var one incident.Incident
	err := fetch(ctx, controlSocketPath, view.PathIncidents+"/"+id, &one)
	if errors.Is(err, errNotFound) {
		return nil, fmt.Errorf("%s: %w", id, incident.ErrUnknown)
	}
	if err != nil {
		return nil, fmt.Errorf("asking plegd for the incident %s: %w", id, err)
	}
	return &one, nil
}

// errNotFound is wrapped when the daemon answers 404.
var errNotFound = errors.New("404 Not Found")

// UnixTransport returns a transport for HTTP over a unix socket, which makes one
// connection for each request.
func UnixTransport(socket string) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}
}

// fetch decodes the JSON that the daemon answers for path into v.
func fetch(ctx context.Context, socket, path string, v any) error {
	if socket == "" {
		return noDaemonError("there is no control socket to ask; give one with --control-socket")
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	tr := UnixTransport(socket)
	defer tr.CloseIdleConnections()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://plegd"+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		return explain(err, socket)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return explain(err, socket)
	}
	if resp.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%s answers %w: is it the control socket of a plegd of this version?", socket, errNotFound)
	}
	if resp.StatusCode == http.StatusServiceUnavailable {
		return fmt.Errorf("%s answers: %.200s", socket, plain.Text(strings.TrimSpace(string(body))))
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: is it plegd's control socket?", socket, resp.Status)
	}
	if err := health.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%s answers something else than plegd's JSON (%w): is it plegd's control socket?", socket, err)
	}
	return nil
}

// explain turns what went wrong on the socket into what to do about it.
func explain(err error, socket string) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return noDaemonError("there is no socket at " + socket + ": is plegd running? (systemctl status plegd, or --control-socket)")
	case errors.Is(err, syscall.ECONNREFUSED):
		return noDaemonError("nobody listens at " + socket + ": plegd has died and left its socket (systemctl status plegd)")
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("no permission to open %s, which is its owner's alone: run this as root", socket)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w from %s in time: plegd is stopped or stuck (systemctl status plegd)", ErrNoAnswer, socket)
	case errors.Is(err, context.Canceled):
		return err
	}
	return fmt.Errorf("%s: %w: is it plegd's control socket?", socket, err)
}
