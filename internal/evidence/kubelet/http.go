package kubelet

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/evidence/node"
)

const (
	// maxToken and maxCA are far above any token and any bundle of certificates.
	maxToken = 64 << 10
	maxCA    = 4 << 20
)

// Validate checks the values of the kubelet's flags. A file that does not exist yet is a
// transient condition, and no error. The error is one line that names the flag, the value
// and the allowed ones.
func Validate(healthzURL, metricsURL, tokenFile, caFile string) error {
	secure := false
	for _, f := range []struct{ flag, value, example string }{
		{"--kubelet-healthz-url", healthzURL, DefaultHealthz},
		{"--kubelet-metrics-url", metricsURL, "https://127.0.0.1:10250/metrics"},
	} {
		if f.value == "" {
			continue
		}
		u, err := url.Parse(f.value)
		u = cmp.Or(u, &url.URL{Opaque: f.value})
		port, badPort := strconv.ParseUint(cmp.Or(u.Port(), "80"), 10, 16)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || badPort != nil || port == 0 ||
			u.User != nil || u.Fragment != "" {
			return fmt.Errorf("%s: %q: want an http or https URL, as in %s, or nothing to turn it off",
				f.flag, u.Redacted(), f.example)
		}
		secure = secure || u.Scheme == "https"
	}
	for _, f := range []struct{ flag, value string }{{"--kubelet-token-file", tokenFile}, {"--kubelet-ca-file", caFile}} {
		if f.value != "" && !secure {
			return fmt.Errorf("%s: %q is of no use: want an https URL in --kubelet-healthz-url or "+
				"--kubelet-metrics-url beside it", f.flag, f.value)
		}
	}
	return nil
}

// endpoint is one URL of the kubelet with the client that asks it. The client talks to
// that host only: it asks no proxy and follows no redirect. It keeps a connection between
// two samples.
type endpoint struct {
	url, tokenFile string
	client         *http.Client
}

func newEndpoint(address string, opts *Options) *endpoint {
	u, err := url.Parse(address)
	if err != nil || address == "" {
		return nil // Validate has refused an invalid one
	}
	e := &endpoint{url: address}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if u.Scheme == "https" {
		e.tokenFile = opts.TokenFile
		if opts.CAFile != "" {
			config.InsecureSkipVerify = true //nolint:gosec // verify does it, and allows the pinned certificate
			config.VerifyConnection = func(s tls.ConnectionState) error { return verify(s, u.Hostname(), opts.CAFile) }
		}
	}
	e.client = &http.Client{
		Timeout: opts.Timeout,
		Transport: &http.Transport{
			TLSClientConfig: config, MaxIdleConnsPerHost: 1, IdleConnTimeout: 20 * time.Second, MaxResponseHeaderBytes: 64 << 10,
			DisableCompression: true, // over loopback compressing costs more than it saves
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return e
}

// get makes one request, with the token where the URL is one that keeps it secret.
func (e *endpoint) get(ctx context.Context) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "plegd")
	req.Header.Set("Accept", "text/plain")
	if e.tokenFile != "" {
		b, err := node.ReadLimited(e.tokenFile, maxToken)
		token := strings.TrimSpace(string(b))
		if err == nil && token == "" {
			err = fmt.Errorf("%s is empty", e.tokenFile)
		}
		if err != nil {
			return nil, fmt.Errorf("reading --kubelet-token-file: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return e.client.Do(req)
}

// verify checks the kubelet's certificate: it is one of those in a file, under any
// name, since a kubelet signs its own for the name of the node; or one of them has signed
// it for host. The file is read for each connection: the certificate rotates.
func verify(s tls.ConnectionState, host, caFile string) error {
	bundle, err := node.ReadLimited(caFile, maxCA)
	if err != nil {
		return fmt.Errorf("reading --kubelet-ca-file: %w", err)
	}
	leaf, opts := s.PeerCertificates[0], x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
	if !opts.Roots.AppendCertsFromPEM(bundle) {
		return fmt.Errorf("reading --kubelet-ca-file: %s holds no PEM certificate", caFile)
	}
	if !bytes.Contains(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw})) {
		opts.DNSName = host
	}
	for _, c := range s.PeerCertificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	_, err = leaf.Verify(opts)
	return err
}

// statusError says what to do about an answer that is none; nil for 200.
func statusError(resp *http.Response) error {
	advice := "see that the URL is the kubelet's"
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusUnauthorized:
		advice = "name a valid token in --kubelet-token-file, and use an https URL"
	case http.StatusForbidden:
		advice = "the token's account needs get on nodes/metrics and nodes/healthz, or on nodes/proxy"
	}
	return fmt.Errorf("it answered %s: %s", resp.Status, advice)
}
