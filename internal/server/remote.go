package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/plain"
	"github.com/plegd/plegd/internal/view"
)

// Remote is a daemon that is asked over HTTP. The fields are named as curl's
// options.
type Remote struct {
	// URL is http://NODE:20290 or https://NODE:20290.
	URL               string
	CACert, Cert, Key string
	// User is NAME:PASSWORD.
	User     string
	Insecure bool
}

// Validate checks what can be checked without the network.
func (r *Remote) Validate() error {
	u, err := url.Parse(r.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("--url %q: want http://NODE:20290 or https://NODE:20290", r.URL)
	}
	if (r.Cert == "") != (r.Key == "") {
		return errors.New("--cert and --key: give both or none")
	}
	return nil
}

func (r *Remote) tlsConfig() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: r.Insecure} // --insecure asks for it
	if r.CACert != "" {
		pem, err := os.ReadFile(r.CACert)
		if err != nil {
			return nil, fmt.Errorf("--cacert: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--cacert %q: holds no certificate in PEM", r.CACert)
		}
	}
	if r.Cert != "" {
		pair, err := tls.LoadX509KeyPair(r.Cert, r.Key)
		if err != nil {
			return nil, fmt.Errorf("--cert and --key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// FetchStatus asks for the status. A daemon that does not accept the client as
// local or authenticated answers with its public summary; the snapshot is nil then.
func (r *Remote) FetchStatus(ctx context.Context) (*health.Snapshot, *view.Public, error) {
	config, err := r.tlsConfig()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(r.URL, "/")+view.PathStatus, http.NoBody)
	if err != nil {
		return nil, nil, fmt.Errorf("--url: %w", err)
	}
	if name, password, ok := strings.Cut(r.User, ":"); ok || name != "" {
		req.SetBasicAuth(name, password)
	}
	tr := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		return nil, nil, fmt.Errorf("ask plegd for its status: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, nil, fmt.Errorf("ask plegd for its status: %w", err)
	}
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized:
		return nil, nil, fmt.Errorf("%s wants a password: give --user NAME:PASSWORD", r.URL)
	default:
		return nil, nil, fmt.Errorf("%s answers %s: is it plegd?", r.URL, plain.Text(resp.Status))
	}
	return decodeStatus(r.URL, body)
}

func decodeStatus(from string, body []byte) (*health.Snapshot, *view.Public, error) {
	var p view.Public
	err := health.Unmarshal(body, &p)
	if err == nil && p.SchemaVersion != health.SchemaVersion {
		err = fmt.Errorf("it answers in version %d of the document and this command reads %d", p.SchemaVersion, health.SchemaVersion)
	}
	if err == nil && p.Public {
		return nil, &p, nil
	}
	var s health.Snapshot
	if err == nil {
		err = health.Unmarshal(body, &s)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: read the status: %w", from, err)
	}
	return &s, nil, nil
}
