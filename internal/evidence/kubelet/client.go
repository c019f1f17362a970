package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// DefaultHealthz is where a kubelet answers unless it was told otherwise.
const DefaultHealthz = "http://127.0.0.1:10248/healthz"

const (
	defaultTimeout = 2 * time.Second
	// healthzBytes is how much of a healthz answer is read, detailBytes how much
	// of it is kept.
	healthzBytes = 16 << 10
	detailBytes  = 256
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
	// of plegd. nil: not known.
	Seen func() bool
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

// New returns a client. The error is of a wrong option, in one line.
func New(opts Options) (*Client, error) {
	if err := Validate(opts.HealthzURL, opts.MetricsURL, opts.TokenFile, opts.CAFile); err != nil {
		return nil, err
	}
	if opts.Timeout == 0 {
		opts.Timeout = defaultTimeout
	}
	healthz, metrics := newEndpoint(opts.HealthzURL, &opts), newEndpoint(opts.MetricsURL, &opts)
	return &Client{opts: opts, healthz: healthz, metrics: metrics}, nil
}

// Limit is the longest time that a sample takes.
func (k *Client) Limit() time.Duration { return 2*k.opts.Timeout + time.Second }

// Sample asks metrics and healthz, healthz last: a kubelet that stops meanwhile is found
// out at once. That healthz fails, hangs or is refused is a sample; the error is that
// nothing is known by it: a request that the kubelet does not allow, a certificate that is
// not trusted, a kubelet that has never answered. ErrNone where none is configured, or the
// node has none.
func (k *Client) Sample(ctx context.Context) (*health.Kubelet, error) {
	if k.healthz == nil && k.metrics == nil {
		return nil, ErrNone
	}
	k.seen = k.seen || k.opts.Seen != nil && k.opts.Seen()
	out := &health.Kubelet{At: time.Now(), OK: true}
	var metricsErr error
	if k.metrics != nil {
		if metricsErr = k.readMetrics(ctx, out); metricsErr == nil {
			k.seen = true
		} else if k.healthz == nil {
			return nil, metricsErr
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
	switch {
	case !out.OK && k.failedSince.IsZero():
		k.failedSince = out.At
	case out.OK:
		k.failedSince = time.Time{}
		if metricsErr != nil {
			out.Detail = cut(metricsErr.Error())
		}
	}
	out.Seen, out.FailedSince, out.AnsweredAt = k.seen, k.failedSince, k.answeredAt
	return out, nil
}

// readHealthz asks the kubelet's healthz. The error says why its state is not known.
func (k *Client) readHealthz(ctx context.Context, out *health.Kubelet) error {
	resp, err := k.healthz.get(ctx)
	if err != nil {
		return k.unanswered(err, out)
	}
	defer resp.Body.Close()
	// A body that drips or breaks off is as good as its beginning: the status is
	// the answer.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, healthzBytes))
	switch {
	case resp.StatusCode == http.StatusOK:
	case resp.StatusCode >= http.StatusInternalServerError:
		out.OK, out.Detail = false, failingChecks(resp.Status, string(body))
	default:
		return statusError(resp)
	}
	k.seen, k.answeredAt = true, out.At
	return nil
}

var errNeverAnswered = errors.New("connection refused, and it has never answered: " +
	"start the kubelet, or say in --kubelet-healthz-url where its healthz is")

// unanswered sorts requests without an answer: those to a kubelet that has answered
// before go into out.
func (k *Client) unanswered(err error, out *health.Kubelet) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED) && !k.seen:
		return errNeverAnswered
	case !k.seen:
		return explain(err, k.opts.Timeout)
	case errors.Is(err, syscall.ECONNREFUSED):
		out.Refused, out.Detail = true, "connection refused: nobody listens"
	case errors.Is(err, context.DeadlineExceeded):
		out.Detail = fmt.Sprintf("no answer within %s", k.opts.Timeout)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		out.Detail = "it closes connections without an answer"
	default:
		return explain(err, k.opts.Timeout)
	}
	out.OK = false
	return nil
}

// readMetrics reads the kubelet's own last seen, and how its calls that start pods end.
func (k *Client) readMetrics(ctx context.Context, out *health.Kubelet) error {
	resp, err := k.metrics.get(ctx)
	if err != nil {
		return fmt.Errorf("asking %s: %w", k.opts.MetricsURL, explain(err, k.opts.Timeout))
	}
	defer resp.Body.Close()
	var m metrics
	if err = statusError(resp); err == nil {
		m, err = parseMetrics(resp.Body)
	}
	if err == nil && !m.hasLastSeen {
		err = fmt.Errorf("no %s in it: is this a kubelet's /metrics?", lastSeenMetric)
	}
	if err != nil {
		return fmt.Errorf("asking %s: %w", k.opts.MetricsURL, explain(err, k.opts.Timeout))
	}
	now := time.Now()
	if !m.lastSeen.IsZero() {
		// Against the clock of this moment: a step of it afterwards must not make
		// the kubelet look old.
		out.LastSeen = now.Add(-max(0, now.Round(0).Sub(m.lastSeen)))
	}
	out.Sandboxes, out.Containers = k.sandboxes.next(m.sandboxes, now), k.containers.next(m.containers, now)
	out.Version = m.version
	if m.hasPods {
		waiting := max(0, m.working-m.running)
		out.WaitingPods = &waiting
	}
	return nil
}

// failingChecks returns the checks that a healthz answer names, its lines with [-]; where
// there are none, its first line.
func failingChecks(status, body string) string {
	var failing []string
	for line := range strings.Lines(body) {
		if check, ok := strings.CutPrefix(strings.TrimSpace(line), "[-]"); ok {
			failing = append(failing, strings.TrimSuffix(check, ": reason withheld"))
		}
	}
	first, _, _ := strings.Cut(strings.TrimSpace(body), "\n")
	switch {
	case len(failing) > 0:
		return cut(strings.Join(failing, ", "))
	case first != "":
		return cut(status + ": " + first)
	}
	return cut(status)
}

// cut keeps the beginning of a text from outside.
func cut(s string) string {
	if len(s) > detailBytes {
		s = s[:detailBytes] + "..."
	}
	return strings.ToValidUTF8(s, "")
}
