package kubelet

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/plain"
)

// DefaultHealthz is where a kubelet answers unless it was told otherwise.
const DefaultHealthz = "http://127.0.0.1:10248/healthz"

const (
	defaultTimeout = 2 * time.Second
	healthzBytes   = 16 << 10 // how much of a healthz answer is read
)

// Options configure the source that asks the kubelet.
type Options struct {
	// HealthzURL is the kubelet's healthz, as in DefaultHealthz; MetricsURL its /metrics,
	// as in https://127.0.0.1:10250/metrics; "": not asked.
	HealthzURL, MetricsURL string
	// TokenFile holds the bearer token for https URLs; it is read again each
	// time, since tokens rotate. "": none is sent.
	TokenFile string
	// CAFile holds the certificates that sign for the kubelet's own, or that one
	// itself; read again for each connection. "": the system's.
	CAFile string
	// Seen is true where the kubelet's healthz has answered in this boot, before a restart
	// of plegd.
	Seen bool
	// Process reports whether a kubelet's process is seen. Where none is, a
	// connection that is refused is no news: the node has no kubelet. nil: not known.
	Process func() bool
	// Timeout limits each request; 0: 2 s.
	Timeout time.Duration
}

// Client asks a kubelet. Not for several goroutines at once.
type Client struct {
	opts             Options
	healthz, metrics *endpoint // nil: not asked

	seen        bool // it has answered in this boot
	failedSince time.Time
	answeredAt  time.Time // when healthz was last asked and answered
	// sandboxes and containers follow its calls that start pods.
	sandboxes, containers startCounter
}

// New returns a client. Validate has accepted the options.
func New(opts Options) *Client {
	opts.Timeout = cmp.Or(opts.Timeout, defaultTimeout)
	return &Client{
		opts: opts, healthz: newEndpoint(opts.HealthzURL, &opts), metrics: newEndpoint(opts.MetricsURL, &opts),
		seen: opts.Seen, sandboxes: startCounter{operation: "run_podsandbox"}, containers: startCounter{operation: "create_container"},
	}
}

// Sample asks metrics and healthz, healthz last: a kubelet that stops meanwhile is found
// out at once. That healthz fails, hangs or is refused is a sample; the error is that
// nothing is known by it: a request that the kubelet does not allow, a certificate that is
// not trusted, a kubelet that has never answered. ErrNone where none is configured, or the
// node has none.
func (k *Client) Sample(ctx context.Context) (*health.Kubelet, error) {
	if k.healthz == nil && k.metrics == nil {
		return nil, ErrNone
	}
	out := &health.Kubelet{At: time.Now(), OK: true}
	if k.metrics != nil {
		switch err := k.readMetrics(ctx, out); {
		case err == nil:
			k.seen = true
		case k.healthz == nil:
			return nil, err
		default:
			out.Detail = plain.Cut(err.Error())
		}
	}
	if k.healthz != nil {
		if err := k.readHealthz(ctx, out); err != nil {
			k.failedSince = time.Time{} // since when it fails is not known
			if errors.Is(err, errNeverAnswered) && k.opts.Process != nil && !k.opts.Process() {
				return nil, ErrNone
			}
			return nil, fmt.Errorf("asking %s: %w", k.opts.HealthzURL, err)
		}
	}
	if k.failedSince = cmp.Or(k.failedSince, out.At); out.OK {
		k.failedSince = time.Time{}
	}
	out.Seen, out.FailedSince, out.AnsweredAt = k.seen, k.failedSince, k.answeredAt
	return out, nil
}

// readHealthz asks the kubelet's healthz. The error says why its state is not known.
func (k *Client) readHealthz(ctx context.Context, out *health.Kubelet) error {
	resp, err := k.healthz.get(ctx)
	if err != nil {
		out.Refused = errors.Is(err, syscall.ECONNREFUSED)
		why, silent := k.explain(err)
		switch {
		case out.Refused && !k.seen:
			return errNeverAnswered
		case !silent || !k.seen:
			return why
		}
		out.OK, out.Detail = false, why.Error()
		return nil
	}
	defer resp.Body.Close()
	// A body that drips or breaks off is as good as its beginning: the status is
	// the answer.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, healthzBytes))
	if err := statusError(resp); err != nil {
		if resp.StatusCode < http.StatusInternalServerError {
			return err
		}
		out.OK, out.Detail = false, failingChecks(resp.Status, string(body))
	}
	k.seen, k.answeredAt = true, out.At
	return nil
}

var errNeverAnswered = errors.New("connection refused, and it has never answered: " +
	"start the kubelet, or say in --kubelet-healthz-url where its healthz is")

// readMetrics reads the kubelet's own last seen, and how its calls that start pods end.
func (k *Client) readMetrics(ctx context.Context, out *health.Kubelet) error {
	resp, err := k.metrics.get(ctx)
	var values map[string]float64
	if err == nil {
		defer resp.Body.Close()
		err = statusError(resp)
	}
	if err == nil {
		values, out.Version, err = parseMetrics(resp.Body)
	}
	if _, has := values[lastSeenMetric]; err == nil && !has {
		err = fmt.Errorf("no %s in it: is this a kubelet's /metrics?", lastSeenMetric)
	}
	if err != nil {
		why, _ := k.explain(err)
		return fmt.Errorf("asking %s: %w", k.opts.MetricsURL, why)
	}
	now := time.Now()
	if seen := values[lastSeenMetric]; seen > 0 { // a time that was never set is far below
		// Against the clock of this moment: a step of it afterwards must not make
		// the kubelet look old.
		out.LastSeen = now.Add(-max(0, now.Round(0).Sub(time.UnixMilli(int64(seen*1e3)))))
	}
	out.Sandboxes, out.Containers = k.sandboxes.next(values, now), k.containers.next(values, now)
	if working, has := values[workingPods]; has { // not before 1.27
		waiting := max(0, int(working-values[runningPods]))
		out.WaitingPods = &waiting
	}
	return nil
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
func (k *Client) explain(err error) (why error, silent bool) {
	var (
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		request *url.Error
	)
	switch {
	case errors.As(err, &unknown):
		return errors.New("its certificate is signed by an unknown authority: a kubelet mostly signs its own; name its " +
			"certificate or the one that signed it in --kubelet-ca-file (usually /var/lib/kubelet/pki/kubelet.crt)"), false
	case errors.As(err, &name):
		return fmt.Errorf("%w: use the name that the certificate is for in the URL, "+
			"or name that certificate in --kubelet-ca-file", name), false
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("connection refused: nobody listens"), true
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %s", k.opts.Timeout), true
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return errors.New("it closes connections without an answer"), true
	case errors.As(err, &request):
		return request.Err, false // without the URL, which is said already
	}
	return err, false
}
