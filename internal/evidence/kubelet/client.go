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
	// HealthzURL and MetricsURL are the kubelet's; an empty one is not requested.
	HealthzURL, MetricsURL string
	// TokenFile holds the bearer token for https URLs, "" for none. It is read for each
	// request: tokens rotate.
	TokenFile string
	// CAFile holds the kubelet's certificate or that of its signer, "" for the system's. It is
	// read for each connection.
	CAFile string
	// Seen is true if the kubelet has answered since the node's boot.
	Seen bool
	// Process returns the kubelet's process, nil if there is none: then a refused connection
	// means that the node has no kubelet. known is false if the search failed. Optional.
	Process func() (p *facts.KubeletProcess, known bool)
	// Timeout limits each request; 0: 2 s.
	Timeout time.Duration
}

// Client requests the healthz and metrics of a kubelet. It is not safe for concurrent use.
type Client struct {
	opts    Options
	healthz *requester // nil: not requested
	metrics *requester // likewise

	failedSince time.Time
	answeredAt  time.Time          // the time of the last answered request of healthz
	values      map[string]float64 // the last metrics
	last        facts.Kubelet      // what these showed
	relisted    time.Time          // start of the last relist, by its counters; zero while unknown

	lastProcess *facts.KubeletProcess // the last process that was seen, nil for none
	version     string                // of the kubelet that started at versionOf
	// versionOf is the start of that process in ticks; 0 if no process was seen.
	versionOf uint64
}

// New returns a client. Validate has accepted the options.
func New(opts Options) *Client {
	opts.Timeout = cmp.Or(opts.Timeout, 2*time.Second)
	return &Client{
		opts:    opts,
		healthz: newRequester(opts.HealthzURL, &opts),
		metrics: newRequester(opts.MetricsURL, &opts),
	}
}

// Sample requests metrics, then healthz: the order notices a kubelet that stops in between. A
// healthz that fails, hangs or is refused is a sample. An error means that the state of the
// kubelet is unknown: it does not allow the request, its certificate is not trusted, or it has
// never answered. The error is ErrNone if no URL is configured or the node has no kubelet.
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
	case k.lastProcess != nil && k.lastProcess.HealthzOff():
		err = k.followProcess(process, known, out)
	default:
		err = k.sampleHealthz(ctx, process, known, out)
	}
	if err != nil {
		k.failedSince = time.Time{} // the begin of a later failure is unknown
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

// process returns the kubelet's process, nil if there is none or it is not known.
func (k *Client) process() (process *facts.KubeletProcess, known bool) {
	if k.opts.Process == nil {
		return nil, false
	}
	process, known = k.opts.Process()
	if process != nil {
		k.lastProcess = process
	}
	return process, known
}

// keepVersion sets the version of a sample without metrics: it is valid for the life of the process.
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
		if err != nil || !isWebURL(u) {
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

// isWebURL reports whether a URL is a plain http or https URL with a valid port.
func isWebURL(u *url.URL) bool {
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "80"), 10, 16)
	isWeb := u.Scheme == "http" || u.Scheme == "https"
	return isWeb && u.Hostname() != "" && err == nil && port != 0 && u.User == nil && u.Fragment == ""
}
