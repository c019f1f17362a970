package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/common/config"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/plain"
	"github.com/plegd/plegd/internal/view"
)

const (
	// fetchTimeout bounds a request. The daemon answers from memory; one that takes
	// longer is stopped or stuck.
	fetchTimeout = 3 * time.Second
	maxAnswer    = 8 << 20 // bytes
)

// Errors of a Client that callers distinguish.
var (
	ErrNoDaemon = errors.New("no plegd runs here")
	ErrNoAnswer = errors.New("no answer")
	errNotFound = errors.New("404 Not Found")
)

// Client asks a daemon over its control socket, or over HTTP if URL is set. The fields
// below URL are named as curl's options.
type Client struct {
	Socket string
	// URL is http://NODE:20290 or https://NODE:20290.
	URL               string
	CACert, Cert, Key string
	// User is NAME:PASSWORD.
	User     string
	Insecure bool

	timeout time.Duration // fetchTimeout if it is 0
}

// Validate checks what can be checked without the network.
func (c *Client) Validate() error {
	switch {
	case c.URL == "" && *c != (Client{Socket: c.Socket}):
		return errors.New("--cacert, --cert, --key, --user and --insecure: give --url with them")
	case c.URL != "" && !validURL(c.URL):
		return fmt.Errorf("--url %q: want http://NODE:20290 or https://NODE:20290", c.name())
	case c.User != "" && !strings.Contains(c.User, ":"):
		return errors.New("--user: want NAME:PASSWORD")
	case (c.Cert == "") != (c.Key == ""):
		return errors.New("--cert and --key: give both or none")
	}
	return nil
}

// validURL reports whether a path can be appended to a URL.
func validURL(s string) bool {
	u, err := url.Parse(s)
	if err != nil {
		return false
	}
	web := u.Scheme == "http" || u.Scheme == "https"
	return web && u.Host != "" && u.RawQuery == "" && !u.ForceQuery && u.Fragment == ""
}

// Status asks for the status. A daemon that does not accept the client as local or
// authenticated answers with its public summary; the snapshot is nil then.
func (c *Client) Status(ctx context.Context) (*facts.Snapshot, *view.Public, error) {
	var p view.Public
	body, err := c.ask(ctx, "its status", view.PathStatus, &p)
	switch {
	case err != nil:
		return nil, nil, err
	case p.SchemaVersion != facts.SchemaVersion:
		return nil, nil, fmt.Errorf("ask plegd for its status: it answers in version %d of the document "+
			"and this command reads %d; restart plegd, or use the command of its version (%s)",
			p.SchemaVersion, facts.SchemaVersion, plain.Text(p.PlegdVersion))
	case p.Public:
		return nil, &p, nil
	}
	s := new(facts.Snapshot)
	return s, nil, facts.Unmarshal(body, s)
}

// Incidents asks for the heads of the incidents, newest first.
func (c *Client) Incidents(ctx context.Context) (list []incident.Summary, err error) {
	_, err = c.ask(ctx, "its incidents", view.PathIncidents, &list)
	return list, err
}

// Incident asks for one incident. The error wraps incident.ErrUnknown if the daemon has
// none with this id.
func (c *Client) Incident(ctx context.Context, id string) (*incident.Incident, error) {
	one := new(incident.Incident)
	_, err := c.ask(ctx, "an incident", view.PathIncidents+"/"+url.PathEscape(id), one)
	if errors.Is(err, errNotFound) {
		err = fmt.Errorf("%.40q: %w", id, incident.ErrUnknown)
	}
	return one, err
}

// ask decodes the answer for a path into v, and returns it.
func (c *Client) ask(ctx context.Context, what, path string, v any) ([]byte, error) {
	body, err := c.Get(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("ask plegd for %s: %w", what, err)
	}
	if err := facts.Unmarshal(body, v); err != nil {
		return nil, fmt.Errorf("ask plegd for %s: %s answers with something else than plegd's JSON (%w): is it plegd?",
			what, c.name(), err)
	}
	return body, nil
}

// name is where the daemon is asked, without a password.
func (c *Client) name() string {
	if c.URL == "" {
		return c.Socket
	}
	u, err := url.Parse(c.URL)
	if err == nil && u.User == nil && !strings.Contains(c.URL, "@") {
		return c.URL
	}
	if err == nil && u.Host != "" {
		return u.Scheme + "://" + u.Host
	}
	return "URL with a password"
}

// Get returns the answer for a path.
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	if c.name() == "" {
		return nil, fmt.Errorf("%w: there is no control socket to ask; give one with --control-socket", ErrNoDaemon)
	}
	tr, err := c.transport()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.timeout, fetchTimeout))
	defer cancel()
	base := cmp.Or(strings.TrimSuffix(c.URL, "/"), "http://plegd")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	if name, password, ok := strings.Cut(c.User, ":"); ok {
		req.SetBasicAuth(name, password)
	}
	var body []byte
	// A redirect could send the password to another host, or in the clear.
	client := &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	resp, err := client.Do(req)
	if err == nil {
		defer func() { _ = resp.Body.Close() }()
		body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	}
	if err != nil {
		return nil, c.explain(err)
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return body, nil
	case http.StatusUnauthorized:
		return nil, fmt.Errorf("%s wants a password: give --user NAME:PASSWORD", c.name())
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect:
		return nil, fmt.Errorf("%s redirects, which is not followed: give the URL of plegd itself", c.name())
	case http.StatusNotFound:
		return nil, fmt.Errorf("%s answers %w: is it a plegd of this version?", c.name(), errNotFound)
	}
	return nil, fmt.Errorf("%s answers %s: %.200s", c.name(), plain.Text(resp.Status),
		plain.Text(strings.TrimSpace(string(body))))
}

// transport makes one connection for each request.
func (c *Client) transport() (*http.Transport, error) {
	tls, err := config.NewTLSConfig(&config.TLSConfig{
		CAFile: c.CACert, CertFile: c.Cert, KeyFile: c.Key, InsecureSkipVerify: c.Insecure,
	})
	if err != nil {
		return nil, fmt.Errorf("--cacert, --cert and --key: %w", err)
	}
	tr := &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment, TLSClientConfig: tls}
	if c.URL == "" {
		tr.Proxy = nil
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", c.Socket)
		}
	}
	return tr, nil
}

// explain adds what to do about a failed request.
func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w from %s in time: plegd is stopped or stuck (systemctl status plegd)", ErrNoAnswer, c.name())
	case c.URL == "" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)):
		return fmt.Errorf("%w: %w (systemctl status plegd, or --control-socket)", ErrNoDaemon, err)
	case c.URL == "" && errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: only its owner may open the control socket, run this as root", err)
	}
	return err
}
