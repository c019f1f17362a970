package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"
)

// Validate checks the values of the kubelet's flags, without looking at
// any file: a file that is not there yet is a transient condition. The error is one line that
// names the flag, the value and what is allowed.
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
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || !validPort(u.Port()) || u.User != nil || u.Fragment != "" {
			return fmt.Errorf("%s: %q: want an http or https URL, as in %s, or nothing to turn it off", f.flag, withoutPassword(f.value), f.example)
		}
		secure = secure || u.Scheme == "https"
	}
	for _, f := range []struct{ flag, value string }{{"--kubelet-token-file", tokenFile}, {"--kubelet-ca-file", caFile}} {
		if f.value != "" && !secure {
			return fmt.Errorf("%s: %q is of no use: want an https URL in --kubelet-healthz-url or --kubelet-metrics-url beside it", f.flag, f.value)
		}
	}
	return nil
}

func validPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return s == "" || err == nil && n > 0
}

// withoutPassword is a URL fit for a log.
func withoutPassword(s string) string {
	if u, err := url.Parse(s); err == nil {
		return u.Redacted()
	}
	return s
}

// maxCA is far above any bundle of certificates.
const maxCA = 4 << 20

// newHTTPClient returns a client that talks to the host of its URL and to
// nobody else: it asks no proxy and follows no redirect. It keeps a connection
// between two looks.
func newHTTPClient(caFile string) *http.Client {
	dialer := &net.Dialer{}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext,
			DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				config, err := tlsConfig(caFile, addr)
				if err != nil {
					return nil, err
				}
				return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, addr)
			},
			MaxIdleConnsPerHost:    1,
			IdleConnTimeout:        time.Minute,
			MaxResponseHeaderBytes: 64 << 10,
			// Over loopback compressing costs more than it saves.
			DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// tlsConfig returns the configuration of one connection. The files are read
// for each: the kubelet's certificate rotates.
func tlsConfig(caFile, addr string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if caFile == "" {
		return config, nil
	}
	bundle, err := readFile(caFile, maxCA)
	if err != nil {
		return nil, fmt.Errorf("reading --kubelet-ca-file: %w", err)
	}
	certs := certificates(bundle)
	if len(certs) == 0 {
		return nil, fmt.Errorf("reading --kubelet-ca-file: %s holds no PEM certificate", caFile)
	}
	config.RootCAs = x509.NewCertPool()
	for _, c := range certs {
		config.RootCAs.AddCert(c)
	}
	config.ServerName = serverName(host, certs)
	return config, nil
}

func certificates(bundle []byte) []*x509.Certificate {
	var out []*x509.Certificate
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, c)
		}
	}
	return out
}

// serverName is the name that the kubelet's certificate must hold. A kubelet
// that signs its own puts the node's name into it, and not the loopback address
// at which plegd asks. Where the file holds that very certificate, the name is
// the one that it was made for.
func serverName(host string, certs []*x509.Certificate) string {
	name := host
	for _, c := range certs {
		switch {
		case c.IsCA:
			// An authority's own name is not the kubelet's.
		case c.VerifyHostname(host) == nil:
			return host
		case name != host:
		case len(c.DNSNames) > 0:
			name = c.DNSNames[0]
		case len(c.IPAddresses) > 0:
			name = c.IPAddresses[0].String()
		}
	}
	return name
}

// statusError says what to do about an answer that is none.
func statusError(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		return fmt.Errorf("it answered %s: name a valid token in --kubelet-token-file, and use an https URL", resp.Status)
	case http.StatusForbidden:
		return fmt.Errorf("it answered %s: the token's account needs get on nodes/metrics and nodes/healthz, or on nodes/proxy", resp.Status)
	default:
		return fmt.Errorf("it answered %s: see that the URL is the kubelet's", resp.Status)
	}
}

// explain says why a request got no answer, and what to do where that is known.
func explain(err error, timeout time.Duration) error {
	var (
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		request *url.Error
	)
	switch {
	case errors.As(err, &unknown):
		return errors.New("its certificate is signed by nobody known: a kubelet mostly signs its own; name its certificate or the one that signed it in --kubelet-ca-file (usually /var/lib/kubelet/pki/kubelet.crt)")
	case errors.As(err, &name):
		return fmt.Errorf("%w: use the name that the certificate is for in the URL, or name that certificate in --kubelet-ca-file", name)
	case isTimeout(err):
		return fmt.Errorf("no answer within %s", timeout)
	case errors.As(err, &request):
		return request.Err // without the URL, which is said already
	}
	return err
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &timeout) && timeout.Timeout()
}
