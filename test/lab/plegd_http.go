//go:build e2e

package lab

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// Status is the part of /api/v1/status that the tests read.
type Status struct {
	// Now is when it was made.
	Now            time.Time `json:"at"`
	State          string    `json:"state"`
	Reason         string    `json:"reason"`
	Reasons        []Reason  `json:"reasons"`
	KubeletMessage string    `json:"kubelet_message"`
	// Kubelet is the modelled kubelet.
	Kubelet struct {
		RulesFailIn *float64 `json:"rules_fail_in_seconds"`
	} `json:"kubelet"`
	LastSeen *time.Time `json:"last_seen"`
	// The facts that the verdict is made from.
	facts.Facts `json:"facts"`
}

// AwaitSources waits until sources of evidence are up, or are not.
func AwaitSources(t testing.TB, limit time.Duration, status func() (Status, error), up bool, names ...string) {
	t.Helper()
	Eventually(t, limit, fmt.Sprintf("the sources %q are up: %t", names, up), func() error {
		s, err := status()
		for _, name := range names {
			if source, ok := s.Evidence.Sources[name]; err == nil && (!ok || source.Up != up) {
				err = fmt.Errorf("%s is there: %t, and %+v; all: %+v", name, ok, source, s.Evidence.Sources)
			}
		}
		return err
	})
}

// Reason is an active reason.
type Reason struct {
	ID       string   `json:"id"`
	Severity string   `json:"severity"`
	Evidence []string `json:"evidence"`
}

// Get fetches a path over TCP.
func (p *Plegd) Get(path string) (code int, body string, err error) {
	return Get(p.http, "http://"+p.Address+path)
}

// GetControl fetches a path over the control socket.
func (p *Plegd) GetControl(path string) (code int, body string, err error) {
	return Get(p.Control(5*time.Second), "http://plegd"+path)
}

// Control returns a client of the control socket.
func (p *Plegd) Control(timeout time.Duration) *http.Client {
	return UnixClient(p.ControlSocket, timeout)
}

// UnixClient returns a client of a unix socket, with a connection for each request.
func UnixClient(path string, timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
}

// Get fetches a URL.
func Get(client *http.Client, url string) (code int, body string, err error) {
	answer, err := client.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer Close(answer.Body)
	b, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(b), err
}

// Status fetches the status.
func (p *Plegd) Status() (Status, error) { return GetStatus(p.http, "http://"+p.Address) }

// GetStatus fetches the status of the plegd that serves at an address.
func GetStatus(client *http.Client, base string) (s Status, err error) {
	err = GetJSON(client, base+"/api/v1/status", &s)
	return s, err
}

// GetJSON fetches a document.
func GetJSON(client *http.Client, url string, into any) error {
	code, body, err := Get(client, url)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%s: %d %s", url, code, body)
	}
	if err != nil {
		return err
	}
	return facts.Unmarshal([]byte(body), into)
}

// AwaitState waits until the verdict's state is one of these.
func (p *Plegd) AwaitState(limit time.Duration, states ...string) time.Duration {
	p.t.Helper()
	return Eventually(p.t, limit, fmt.Sprintf("the state is one of %q", states), func() error {
		s, err := p.Status()
		if err != nil {
			return err
		}
		for _, state := range states {
			if s.State == state {
				return nil
			}
		}
		return fmt.Errorf("it is %q, reason %q, reasons %+v", s.State, s.Reason, s.Reasons)
	})
}

// AwaitRelists waits until so many more relists have been attempted.
func (p *Plegd) AwaitRelists(limit time.Duration, n uint64) {
	p.t.Helper()
	var goal uint64
	Eventually(p.t, limit, fmt.Sprintf("%d relists", n), func() error {
		s, err := p.Status()
		if err != nil {
			return err
		}
		if goal == 0 {
			goal = s.Relist.Attempts + n
		}
		if s.Relist.Attempts < goal {
			return fmt.Errorf("relist %d is under way or was the last, not %d", s.Relist.Attempts, goal)
		}
		return nil
	})
}
