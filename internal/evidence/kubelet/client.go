package kubelet

import (
	"bytes"
	"cmp"
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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/plain"
)

// DefaultHealthz is where a kubelet answers unless it was told otherwise.
const DefaultHealthz = "http://127.0.0.1:10248/healthz"

// Options configure the source that asks the kubelet.
type Options struct {
	// HealthzURL and MetricsURL are the kubelet's; "": not asked.
	HealthzURL, MetricsURL string
	// TokenFile holds the bearer token for https URLs, CAFile the kubelet's certificate or
	// those that sign for it; "" for none, and the system's. Both rotate: they are read
	// for each request, and for each connection.
	TokenFile, CAFile string
	// Seen is true where the kubelet has answered in this boot.
	Seen bool
	// Process returns the kubelet's process, nil for none; known is false where that could not
	// be found out. Without a process a connection that is refused is no news: the node has no
	// kubelet. nil: not known.
	Process func() (p *facts.KubeletProcess, known bool)
	// Timeout limits each request; 0: 2 s.
	Timeout time.Duration
}

// Client asks a kubelet. Not for several goroutines at once.
type Client struct {
	opts    Options
	healthz *endpoint // nil: not asked
	metrics *endpoint // likewise

	failedSince time.Time
	answeredAt  time.Time          // when healthz was last asked and answered
	values      map[string]float64 // the last metrics
	relisted    time.Time          // start of its last relist, by their counters; zero while unknown
	status      *facts.StartCalls  // its Status calls
	sandboxes   *facts.StartCalls  // its calls that make sandboxes
	containers  *facts.StartCalls  // its calls that make containers
	api         facts.APICalls     // its requests to the API server

	last    *facts.KubeletProcess // the last process that was seen, nil for none
	version string                // of the kubelet that started at versionOf
	// versionOf is the start of that process in ticks; 0 where no process was seen.
	versionOf uint64
}

// New returns a client. Validate has accepted the options.
func New(opts Options) *Client {
	opts.Timeout = cmp.Or(opts.Timeout, 2*time.Second)
	return &Client{
		opts: opts, healthz: newEndpoint(opts.HealthzURL, &opts), metrics: newEndpoint(opts.MetricsURL, &opts),
	}
}

// Sample asks metrics and healthz, healthz last: a kubelet that stops meanwhile is found
// out at once. That healthz fails, hangs or is refused is a sample; the error is that
// nothing is known by it: a request that the kubelet does not allow, a certificate that is
// not trusted, a kubelet that has never answered. ErrNone where none is configured, or the
// node has none.
func (k *Client) Sample(ctx context.Context) (*facts.Kubelet, error) {
	if k.healthz == nil && k.metrics == nil {
		return nil, ErrNone
	}
	process, known := k.process()
	out := &facts.Kubelet{At: time.Now(), OK: true}
	if err := k.sampleMetrics(ctx, out); err != nil {
		return nil, err
	}
	k.keepVersion(process, out)
	var err error
	switch {
	case k.healthz == nil:
	case k.last != nil && k.last.HealthzOff():
		err = k.followProcess(process, known, out)
	default:
		err = k.sampleHealthz(ctx, process, known, out)
	}
	if err != nil {
		k.failedSince = time.Time{} // since when it fails is not known
		return nil, err
	}
	switch {
	case out.OK:
		k.failedSince = time.Time{}
	case k.failedSince.IsZero():
		k.failedSince = out.At
	}
	out.Seen = k.opts.Seen
	out.FailedSince = k.failedSince
	out.AnsweredAt = k.answeredAt
	return out, nil
}

// process returns the kubelet's process; nil for none, or an unknown one.
func (k *Client) process() (process *facts.KubeletProcess, known bool) {
	if k.opts.Process == nil {
		return nil, false
	}
	process, known = k.opts.Process()
	if process != nil {
		k.last = process
	}
	return process, known
}

// keepVersion completes the version: a kubelet has one for as long as its process lives, also
// while it does not answer.
func (k *Client) keepVersion(process *facts.KubeletProcess, out *facts.Kubelet) {
	started := k.versionOf
	if process != nil {
		started = process.StartTicks
	}
	switch {
	case out.Version != "":
		k.version = out.Version
		k.versionOf = started
	case started == k.versionOf:
		out.Version = k.version
	}
}

// sampleMetrics reads the metrics, where they are asked for. That it fails is an error only
// without healthz.
func (k *Client) sampleMetrics(ctx context.Context, out *facts.Kubelet) error {
	if k.metrics == nil {
		return nil
	}
	err := k.readMetrics(ctx, out)
	switch {
	case err == nil:
		k.opts.Seen = true
	case k.healthz == nil:
		return err
	default:
		out.Detail = plain.Cut(err.Error())
	}
	return nil
}

// followProcess samples a kubelet whose healthz is turned off: its process is all that shows.
func (k *Client) followProcess(process *facts.KubeletProcess, known bool, out *facts.Kubelet) error {
	switch {
	case process != nil:
		k.opts.Seen = true
		k.answeredAt = out.At
		return nil
	case !known:
		return errors.New("its healthz is turned off (healthzPort 0), and its process cannot be looked for")
	}
	out.OK = false
	out.Refused = true
	out.Detail = "its process has ended; its healthz is turned off (healthzPort 0)"
	return nil
}

// sampleHealthz asks the kubelet's healthz.
func (k *Client) sampleHealthz(ctx context.Context, process *facts.KubeletProcess, known bool, out *facts.Kubelet) error {
	err := k.readHealthz(ctx, out)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNeverAnswered) && process == nil && known:
		return ErrNone
	case errors.Is(err, errNeverAnswered) && k.silentForLong(process):
		out.OK = false
		out.Detail = "connection refused: it has not begun to listen"
		return nil
	}
	return fmt.Errorf("asking %s: %w", k.opts.HealthzURL, err)
}

// listensAfter is how long after its start a kubelet listens at the latest where nothing
// holds it up; measured 1.4 to 6 s.
const listensAfter = 30 * time.Second

// silentForLong reports whether a kubelet should listen at the usual place by now.
func (k *Client) silentForLong(process *facts.KubeletProcess) bool {
	usual := k.opts.HealthzURL == DefaultHealthz && process != nil && process.HealthzPort == nil
	return usual && time.Since(process.Started) > listensAfter
}

// readHealthz asks the kubelet's healthz. The error says why its state is not known.
func (k *Client) readHealthz(ctx context.Context, out *facts.Kubelet) error {
	resp, err := k.healthz.get(ctx)
	if err != nil {
		out.Refused = errors.Is(err, syscall.ECONNREFUSED)
		silent, why := k.explain(err)
		switch {
		case out.Refused && !k.opts.Seen:
			return errNeverAnswered
		case !silent || !k.opts.Seen:
			return why
		}
		out.OK = false
		out.Detail = why.Error()
		return nil
	}
	defer resp.Body.Close()
	// A body that drips or breaks off is as good as its beginning.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxHealthz))
	if err := statusError(resp); err != nil {
		if resp.StatusCode < http.StatusInternalServerError {
			return err
		}
		out.OK = false
		out.Detail = failingChecks(resp.Status, string(body))
	}
	k.opts.Seen = true
	k.answeredAt = out.At
	return nil
}

// maxHealthz bounds an answer of healthz, in bytes.
const maxHealthz = 16 << 10

var errNeverAnswered = errors.New("connection refused, and it has never answered: " +
	"start the kubelet, or say in --kubelet-healthz-url where its healthz is")

// readMetrics reads the kubelet's own last seen, how its calls that start pods end, and how
// its requests to the API server do.
func (k *Client) readMetrics(ctx context.Context, out *facts.Kubelet) error {
	read, err := k.getMetrics(ctx)
	if err != nil {
		_, why := k.explain(err)
		return fmt.Errorf("asking %s: %w", k.opts.MetricsURL, why)
	}
	readAt := time.Now()
	k.relisted = relistStart(k.relisted, k.values, read.values, readAt)
	seen := read.values[lastSeenMetric] // a time that was never set is far below 0
	switch {
	case k.last != nil && k.last.EventedPLEG:
		out.LastSeen = k.relisted // the metric is when its health was last asked for (pleg/evented.go, Healthy)
	case seen > 0:
		// Against the clock of this moment: a step of it afterwards must not make
		// the kubelet look old.
		out.LastSeen = readAt.Add(-max(0, readAt.Round(0).Sub(time.UnixMilli(int64(seen*1e3)))))
	}
	k.status = startCalls(k.status, "status", k.values, read.values, readAt)
	k.sandboxes = startCalls(k.sandboxes, "run_podsandbox", k.values, read.values, readAt)
	k.containers = startCalls(k.containers, "create_container", k.values, read.values, readAt)
	k.api = apiCalls(k.api, k.values, read.values, readAt)
	k.values = read.values
	out.Version = read.version
	out.Status = k.status
	out.Sandboxes = k.sandboxes
	out.Containers = k.containers
	out.API = k.api
	working, given := read.values[workingPods]
	if given { // not before 1.27
		waiting := max(0, int(working-read.values[runningPods]))
		out.WaitingPods = &waiting
	}
	return nil
}

// getMetrics requests and parses the kubelet's metrics.
func (k *Client) getMetrics(ctx context.Context) (metrics, error) {
	resp, err := k.metrics.get(ctx)
	if err != nil {
		return metrics{}, err
	}
	defer resp.Body.Close()
	if err := statusError(resp); err != nil {
		return metrics{}, err
	}
	read, err := parseMetrics(resp.Body)
	if err != nil {
		return metrics{}, err
	}
	if _, given := read.values[lastSeenMetric]; !given {
		return metrics{}, fmt.Errorf("no %s in it: is this a kubelet's /metrics?", lastSeenMetric)
	}
	return read, nil
}

var failingCheck = regexp.MustCompile(`(?m)^\s*\[-\](.*?)(: reason withheld)?\s*$`)

// failingChecks returns the checks that a healthz answer names, its lines with [-]; where
// there are none, its first line.
func failingChecks(status, body string) string {
	var failing []string
	for _, check := range failingCheck.FindAllStringSubmatch(body, -1) {
		failing = append(failing, check[1])
	}
	first, _, _ := strings.Cut(strings.TrimSpace(body), "\n")
	return plain.Cut(cmp.Or(strings.Join(failing, ", "), strings.TrimSuffix(status+": "+first, ": ")))
}

// explain returns why a request got no answer, and what to do where that is known. silent
// is true where the kubelet itself gave none.
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
		return false, request.Err // without the URL, which is said already
	}
	return false, err
}

// Validate checks the values of the kubelet's flags. A file may be missing for a while.
// The error is one line that names the flag, the value and the allowed ones.
func Validate(healthzURL, metricsURL, tokenFile, caFile string) error {
	secure := false
	for _, f := range []struct{ flag, value, example string }{
		{"--kubelet-healthz-url", healthzURL, DefaultHealthz},
		{"--kubelet-metrics-url", metricsURL, "https://127.0.0.1:10250/metrics"},
	} {
		if f.value == "" {
			continue
		}
		u, err := parseURL(f.value)
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

// bracketedIPv4 is an IPv4 address in the brackets of an IPv6 one.
var bracketedIPv4 = regexp.MustCompile(`\[([0-9.]+)\]`)

// parseURL parses a URL of the kubelet. An IPv4 address may be in brackets: a manifest does not
// know the family of the node's address.
func parseURL(address string) (*url.URL, error) {
	return url.Parse(bracketedIPv4.ReplaceAllString(address, "$1"))
}

// endpoint is one URL of the kubelet with its client, which talks to that host only: it asks
// no proxy and follows no redirect. It keeps a connection between two samples. The files lie
// on file systems that may hang: each is read in a slot of its own.
type endpoint struct {
	url       string
	client    *http.Client
	tokenFile string
	token     namedFiles
	ca        namedFiles
}

func newEndpoint(address string, opts *Options) *endpoint {
	u, err := parseURL(address)
	if err != nil || address == "" {
		return nil // Validate has refused an invalid one
	}
	e := &endpoint{url: u.String()}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if u.Scheme == "https" {
		e.tokenFile = opts.TokenFile
		if opts.CAFile != "" {
			config.InsecureSkipVerify = true //nolint:gosec // verify does it, and allows the pinned certificate
			config.VerifyConnection = func(s tls.ConnectionState) error { return e.verify(s, u.Hostname(), opts.CAFile) }
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
		token, err := e.readToken(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading --kubelet-token-file: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return e.client.Do(req)
}

func (e *endpoint) readToken(ctx context.Context) (string, error) {
	b, err := e.token.one(ctx, place{}, e.tokenFile)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if token == "" {
		return "", fmt.Errorf("%s is empty", e.tokenFile)
	}
	return token, nil
}

// verify checks the kubelet's certificate: it is one of those in a file, under any
// name, since a kubelet signs its own for the name of the node; or one of them has signed
// it for host. The file is read for each connection: the certificate rotates.
func (e *endpoint) verify(s tls.ConnectionState, host, caFile string) error {
	bundle, err := e.ca.one(context.Background(), place{}, caFile) // tls gives no context
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
