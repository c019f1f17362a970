package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/plegd/plegd/internal/facts"
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
