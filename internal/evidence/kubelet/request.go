package kubelet

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// requester requests one URL of the kubelet and talks to no other host: it uses no proxy and
// follows no redirect. It keeps a connection between two samples. The files of token and
// certificates may be on file systems that hang: each is read in a slot of its own.
type requester struct {
	url       string
	client    *http.Client
	tokenFile string
	token     namedFiles
	ca        namedFiles
}

// newRequester returns the requester of a URL, nil for none.
func newRequester(address string, opts *Options) *requester {
	u, err := parseURL(address)
	if err != nil || address == "" {
		return nil // Validate has refused an invalid one
	}
	r := &requester{url: u.String()}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if u.Scheme == "https" {
		r.tokenFile = opts.TokenFile
		if opts.CAFile != "" {
			config.InsecureSkipVerify = true //nolint:gosec // verify does it, and allows the pinned certificate
			config.VerifyConnection = func(s tls.ConnectionState) error { return r.verify(s, u.Hostname(), opts.CAFile) }
		}
	}
	r.client = &http.Client{
		Timeout: opts.Timeout,
		Transport: &http.Transport{
			TLSClientConfig:        config,
			MaxIdleConnsPerHost:    1,
			IdleConnTimeout:        20 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true, // over loopback compressing costs more than it saves
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return r
}

// get makes one request, over https with the token.
func (r *requester) get(ctx context.Context) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "plegd")
	req.Header.Set("Accept", "text/plain")
	if r.tokenFile != "" {
		token, err := r.readToken(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading --kubelet-token-file: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return r.client.Do(req)
}

func (r *requester) readToken(ctx context.Context) (string, error) {
	b, err := r.token.one(ctx, place{}, r.tokenFile)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if token == "" {
		return "", fmt.Errorf("%s is empty", r.tokenFile)
	}
	return token, nil
}

// verify checks the kubelet's certificate: it is one of those in caFile, for any name, because
// a kubelet signs its own for the name of the node; or it is signed by one of them for host.
// The file is read for each connection: the certificate rotates.
func (r *requester) verify(s tls.ConnectionState, host, caFile string) error {
	bundle, err := r.ca.one(context.Background(), place{}, caFile) // tls gives no context
	if err != nil {
		return fmt.Errorf("reading --kubelet-ca-file: %w", err)
	}
	leaf := s.PeerCertificates[0]
	opts := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
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

// statusError returns advice for a response other than 200, else nil.
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

// explain returns why a request failed, with advice where there is some. silent is true if the
// kubelet itself did not answer.
func (k *Client) explain(err error) (silent bool, why error) {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var request *url.Error
	switch {
	case errors.As(err, &unknown):
		return false, errors.New("its certificate is signed by an unknown authority: a kubelet mostly signs its own; " +
			"name its certificate or the one that signed it in --kubelet-ca-file (usually /var/lib/kubelet/pki/kubelet.crt)")
	case errors.As(err, &name):
		return false, fmt.Errorf("%w: use the name that the certificate is for in the URL, "+
			"or name that certificate in --kubelet-ca-file", name)
	case errors.Is(err, syscall.ECONNREFUSED):
		return true, errors.New("connection refused: nobody listens")
	case errors.Is(err, context.DeadlineExceeded):
		return true, fmt.Errorf("no answer within %s", k.opts.Timeout)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return true, errors.New("it closes connections without an answer")
	case errors.As(err, &request):
		return false, request.Err // without the URL: the caller adds it
	}
	return false, err
}

// parseURL parses a URL of the kubelet. An IPv4 address may be in brackets: a manifest does not
// know the family of the node's address.
func parseURL(address string) (*url.URL, error) {
	return url.Parse(bracketedIPv4.ReplaceAllString(address, "$1"))
}

// bracketedIPv4 is an IPv4 address in the brackets of an IPv6 one.
var bracketedIPv4 = regexp.MustCompile(`\[([0-9.]+)\]`)
