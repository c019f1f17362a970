package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
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
	// HealthzURL is the kubelet's healthz, as in DefaultHealthz; empty:
	// not asked.
	HealthzURL string
	// MetricsURL is the kubelet's /metrics, as in
	// https://127.0.0.1:10250/metrics; empty: not asked.
	MetricsURL string
	// TokenFile holds the bearer token for https URLs; it is read again each
	// time, since tokens rotate. Empty: none is sent.
	TokenFile string
	// CAFile holds the certificates that sign for the kubelet's own, or that one
	// itself; read again for each connection. Empty: the system's.
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
	opts   Options
	client *http.Client

	seen        bool // it has answered in this boot
	failedSince time.Time
	answeredAt  time.Time // when healthz was last asked and answered
	// sandboxes and containers follow its calls that start pods.
	sandboxes, containers startCounter
	// waiting are the requests that are unanswered, by URL; all of them end with
	// life.
	waiting map[string]*request
	life    context.Context
	end     context.CancelFunc
}

// New returns a client, which Close ends. The error is of a wrong option, in one line.
func New(opts Options) (*Client, error) {
	if err := Validate(opts.HealthzURL, opts.MetricsURL, opts.TokenFile, opts.CAFile); err != nil {
		return nil, err
	}
	if opts.Timeout == 0 {
		opts.Timeout = defaultTimeout
	}
	k := &Client{opts: opts, client: newHTTPClient(opts.CAFile), waiting: map[string]*request{}}
	k.life, k.end = context.WithCancel(context.Background())
	return k, nil
}

// Close cancels the requests under way.
func (k *Client) Close() { k.end() }

// Waiting reports whether a request is unanswered.
func (k *Client) Waiting() bool { return len(k.waiting) > 0 }

// Limit is the longest time that a sample takes.
func (k *Client) Limit() time.Duration { return 2*k.opts.Timeout + time.Second }

// Sample asks healthz and metrics. That healthz fails, hangs or is refused is a sample;
// the error is that nothing is known by it: a request that the kubelet does not allow, a
// certificate that is not trusted, a kubelet that has never answered. ErrNone where none
// is configured, or the node has none.
func (k *Client) Sample(ctx context.Context) (*health.Kubelet, error) {
	if k.opts.HealthzURL == "" && k.opts.MetricsURL == "" {
		return nil, ErrNone
	}
	k.seen = k.seen || k.opts.Seen != nil && k.opts.Seen()
	out := &health.Kubelet{At: time.Now(), OK: true}
	if k.opts.HealthzURL != "" {
		if err := k.healthz(ctx, out); err != nil {
			k.failedSince = time.Time{} // nobody knows how long it lasts
			if errors.Is(err, errNeverAnswered) && k.opts.Process != nil && !k.opts.Process() {
				return nil, ErrNone
			}
			return nil, fmt.Errorf("asking %s: %w", k.opts.HealthzURL, err)
		}
	}
	if k.opts.MetricsURL != "" && !out.Refused && k.waiting[k.opts.HealthzURL] == nil {
		if err := k.metrics(ctx, out); err != nil {
			err = fmt.Errorf("asking %s: %w", k.opts.MetricsURL, err)
			if k.opts.HealthzURL == "" {
				return nil, err
			}
			// What healthz said stands without it.
			if out.OK {
				out.Detail = cut(err.Error())
			}
		} else {
			k.seen = true
		}
	}
	out.Seen = k.seen
	if out.OK {
		k.failedSince = time.Time{}
	} else if k.failedSince.IsZero() {
		k.failedSince = out.At
	}
	out.FailedSince, out.AnsweredAt = k.failedSince, k.answeredAt
	return out, nil
}

// healthz asks the kubelet's healthz. The error says why nothing can be told.
func (k *Client) healthz(ctx context.Context, out *health.Kubelet) error {
	resp, err := k.get(ctx, k.opts.HealthzURL)
	if err != nil {
		return k.unanswered(err, out)
	}
	defer resp.Body.Close()
	// A body that drips or breaks off is as good as its beginning: the status is
	// the answer.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, healthzBytes))
	switch {
	case resp.StatusCode == http.StatusOK:
		k.seen, k.answeredAt = true, out.At
	case resp.StatusCode >= http.StatusInternalServerError:
		k.seen, k.answeredAt, out.OK = true, out.At, false
		out.Detail = failingChecks(resp.Status, string(body))
	default:
		return statusError(resp)
	}
	return nil
}

var errNeverAnswered = errors.New("connection refused, and it has never answered: start the kubelet, or say in --kubelet-healthz-url where its healthz is")

// unanswered sorts the requests that got no answer: those that speak of a
// kubelet that was there go into out.
func (k *Client) unanswered(err error, out *health.Kubelet) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		if !k.seen {
			return errNeverAnswered
		}
		out.Refused, out.Detail = true, "connection refused: nobody listens"
	case !k.seen:
		return explain(err, k.opts.Timeout)
	case isTimeout(err):
		out.Detail = fmt.Sprintf("no answer within %s", k.opts.Timeout)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		out.Detail = "it closes connections without an answer"
	default:
		return explain(err, k.opts.Timeout)
	}
	out.OK = false
	return nil
}

// metrics reads the kubelet's own last seen, and how its calls that start pods end.
func (k *Client) metrics(ctx context.Context, out *health.Kubelet) error {
	resp, err := k.get(ctx, k.opts.MetricsURL)
	if err != nil {
		return explain(err, k.opts.Timeout)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return statusError(resp)
	}
	m, err := readMetrics(resp.Body)
	switch {
	case err != nil:
		return explain(err, k.opts.Timeout)
	case !m.hasLastSeen:
		return fmt.Errorf("no %s in it: is this a kubelet's /metrics?", lastSeenMetric)
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

// maxToken is far above any token: what is larger is some other file.
const maxToken = 64 << 10

func readToken(file string) (string, error) {
	b, err := readFile(file, maxToken)
	if err != nil {
		return "", fmt.Errorf("reading --kubelet-token-file: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("reading --kubelet-token-file: %s holds no bearer token", file)
	}
	return token, nil
}

// readFile reads a file of at most limit bytes.
func readFile(file string, limit int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", file, limit)
	}
	return b, nil
}

// failingChecks says which checks a healthz answer names: its lines with [-].
func failingChecks(status, body string) string {
	var failing []string
	first := ""
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(line)
		if check, ok := strings.CutPrefix(line, "[-]"); ok {
			failing = append(failing, strings.TrimSuffix(check, ": reason withheld"))
		} else if first == "" && !strings.HasPrefix(line, "[+]") {
			first = line
		}
	}
	switch {
	case len(failing) > 0:
		return cut(strings.Join(failing, ", "))
	case first != "":
		return cut(status + ": " + first)
	default:
		return cut(status)
	}
}

// cut keeps the beginning of a text from outside.
func cut(s string) string {
	if len(s) > detailBytes {
		s = s[:detailBytes] + "..."
	}
	return strings.ToValidUTF8(s, "")
}
