package daemon

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/events"
	"github.com/plegd/plegd/internal/evidence"
	"github.com/plegd/plegd/internal/evidence/kubelet"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/relist"
)

// Config is what `plegd run` was told.
type Config struct {
	RuntimeEndpoint  string
	RelistPeriod     time.Duration
	RelistThreshold  time.Duration
	RPCTimeout       time.Duration
	NodeStatusPeriod time.Duration
	// Given reports whether the user gave a flag a value; nil: none. The kubelet's
	// own settings count where the user gave none.
	Given              func(flag string) bool
	ProbePeriod        time.Duration
	ProbeTimeout       time.Duration
	StateDir           string
	ControlSocket      string
	ProcFS, SysFS      string
	DockerSocket       string
	KubeletHealthzURL  string
	KubeletMetricsURL  string
	KubeletTokenFile   string
	KubeletCAFile      string
	Events             relist.Mode
	EventsLease        time.Duration
	EventsAllowUnsafe  bool
	WebListenAddresses []string
	WebListeners       []net.Listener // systemd's, in place of the addresses
	WebConfigFile      string

	// Dial connects to the runtime in place of its unix socket; for tests.
	Dial func(context.Context) (net.Conn, error)
	// jitter spreads a period, so that plegd's calls stay in no phase with the
	// kubelet's: nil for a tenth to both sides. For tests.
	jitter func(time.Duration) time.Duration
	clock  func() time.Duration // monotonic; for tests
	// suspended is for how long the node has been suspended since its boot; for tests.
	suspended func() time.Duration
}

// DefaultConfig returns the defaults of `plegd run`.
func DefaultConfig() Config {
	return Config{
		RelistPeriod:       time.Second,
		RelistThreshold:    3 * time.Minute,
		RPCTimeout:         cri.DefaultRPCTimeout,
		NodeStatusPeriod:   facts.DefaultNodeStatusPeriod,
		ProbePeriod:        2 * time.Second,
		ProbeTimeout:       time.Second,
		StateDir:           "/var/lib/plegd",
		ControlSocket:      "/run/plegd/plegd.sock",
		ProcFS:             "/proc",
		SysFS:              "/sys",
		DockerSocket:       evidence.DefaultDockerSocket,
		KubeletHealthzURL:  kubelet.DefaultHealthz,
		Events:             relist.Off,
		EventsLease:        events.DefaultLease,
		WebListenAddresses: []string{":20290"},
		clock:              monotonic,
		suspended:          suspended,
	}
}

// minPeriod keeps a mistyped unit from turning plegd into a load.
const minPeriod = 10 * time.Millisecond

// Validate checks every value except the web server's. The error is one line that names
// the flag, the value and the allowed values.
func (c *Config) Validate() error {
	if c.RuntimeEndpoint != "" {
		if _, err := kubelet.ParseEndpoint(c.RuntimeEndpoint); err != nil {
			return fmt.Errorf("--runtime-endpoint: %w", err)
		}
	}
	for _, d := range []struct {
		flag            string
		value, min, max time.Duration
	}{
		{"--relist-period", c.RelistPeriod, minPeriod, time.Hour},
		{"--relist-threshold", c.RelistThreshold, time.Second, 24 * time.Hour},
		{"--rpc-timeout", c.RPCTimeout, minPeriod, time.Hour},
		{"--node-status-period", c.NodeStatusPeriod, minPeriod, time.Hour},
		{"--probe-period", c.ProbePeriod, minPeriod, time.Hour},
		{"--probe-timeout", c.ProbeTimeout, minPeriod, time.Minute},
		{"--events-lease", c.EventsLease, events.MinLease, events.MaxLease},
	} {
		if d.value < d.min || d.value > d.max {
			return fmt.Errorf("%s: %s: want %s to %s", d.flag, d.value, d.min, d.max)
		}
	}
	switch {
	case c.RelistPeriod >= c.RelistThreshold:
		return fmt.Errorf("--relist-period: %s must be shorter than --relist-threshold, which is %s",
			c.RelistPeriod, c.RelistThreshold)
	case c.Events == relist.Evented && c.RelistPeriod > relist.EventedPeriod:
		return fmt.Errorf("--relist-period: %s: want at most %s with --events=evented, "+
			"which is the time between two relists then", c.RelistPeriod, relist.EventedPeriod)
	case c.ProcFS == "":
		return fmt.Errorf("--path.procfs: must not be empty: want the path where /proc is mounted")
	case c.SysFS == "":
		return fmt.Errorf("--path.sysfs: must not be empty: want the path where /sys is mounted")
	case c.StateDir == "":
		return fmt.Errorf("--state-dir: must not be empty: want a directory, as in /var/lib/plegd")
	}
	if _, err := kubelet.ParseEndpoint(c.DockerSocket); err != nil {
		return fmt.Errorf("--docker-socket: %w", err)
	}
	return kubelet.Validate(c.KubeletHealthzURL, c.KubeletMetricsURL, c.KubeletTokenFile, c.KubeletCAFile)
}

// jittered returns a period of about d.
func (c *Config) jittered(d time.Duration) time.Duration {
	if c.jitter != nil {
		return c.jitter(d)
	}
	return d*9/10 + rand.N(d/5)
}
