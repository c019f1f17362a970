package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/plegd/plegd/internal/daemon"
)

const envPrefix = "PLEGD_"

// envName is the environment variable of a flag.
func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(flag))
}

// fromEnvironment sets every flag that the command line left alone and the
// environment names. The flag wins. An empty variable counts as set: it is how
// a unit switches something off.
func fromEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var err error
	flags.VisitAll(func(f *pflag.Flag) {
		value, ok := lookup(envName(f.Name))
		if !ok || f.Changed || err != nil {
			return
		}
		if list, repeatable := f.Value.(pflag.SliceValue); repeatable {
			_ = list.Replace(strings.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == ',' }))
			f.Changed = true
			return
		}
		if setErr := flags.Set(f.Name, value); setErr != nil {
			err = fmt.Errorf("%s: %w", envName(f.Name), flagError(setErr))
		}
	})
	return err
}

// unknownVariables returns the PLEGD_ variables that no flag has: a typing
// error, most likely. What Kubernetes sets for a service named plegd is left
// out.
func unknownVariables(flags *pflag.FlagSet, environ []string) []string {
	var out []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, envPrefix) || strings.HasPrefix(name, envPrefix+"SERVICE_") || strings.HasPrefix(name, envPrefix+"PORT") {
			continue
		}
		known := false
		flags.VisitAll(func(f *pflag.Flag) { known = known || envName(f.Name) == name })
		if !known {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// flagError adds what is allowed to what pflag says of a wrong value.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	f := invalid.GetFlag()
	switch want := map[string]string{
		"duration": "a duration such as 500ms, 1s or 3m",
		"int":      "a whole number",
		"bool":     "true or false",
	}[f.Value.Type()]; {
	case want != "":
		return fmt.Errorf("--%s: %q: want %s", f.Name, invalid.GetValue(), want)
	case errors.Unwrap(invalid) != nil: // a value of ours says what it wants
		return fmt.Errorf("--%s: %q: %w", f.Name, invalid.GetValue(), errors.Unwrap(invalid))
	}
	return err
}

// watchFlags adds the flags that say what is watched and how: run and check
// share them.
func watchFlags(fs *pflag.FlagSet, c *daemon.Config) {
	fs.StringVar(&c.RuntimeEndpoint, "runtime-endpoint", c.RuntimeEndpoint, "runtime socket, a path or a unix:// URL; empty: what the kubelet uses, else the first usual place that serves runtime.v1")
	fs.DurationVar(&c.RelistPeriod, "relist-period", c.RelistPeriod, "time between the end of a relist and the start of the next")
	fs.DurationVar(&c.RelistThreshold, "relist-threshold", c.RelistThreshold, "age of the last successful relist from which the kubelet calls PLEG unhealthy")
	fs.DurationVar(&c.RPCTimeout, "rpc-timeout", c.RPCTimeout, "the kubelet's limit for one call to the runtime (its --runtime-request-timeout)")
	fs.DurationVar(&c.NodeStatusPeriod, "node-status-period", c.NodeStatusPeriod, "the kubelet's nodeStatusUpdateFrequency: the time between two updates of the node's conditions")
	fs.DurationVar(&c.ProbePeriod, "probe-period", c.ProbePeriod, "time between two fresh connections to the runtime; half as long again while all is well, when most end with its first answer and one in 15 s asks for its Version")
	fs.DurationVar(&c.ProbeTimeout, "probe-timeout", c.ProbeTimeout, "limit for each stage of a fresh connection")
	fs.StringVar(&c.KubeletHealthzURL, "kubelet-healthz-url", c.KubeletHealthzURL, "the kubelet's healthz; empty: disabled")
	fs.StringVar(&c.KubeletMetricsURL, "kubelet-metrics-url", c.KubeletMetricsURL, "the kubelet's /metrics, for its own last seen, as in https://127.0.0.1:10250/metrics; empty: disabled")
	fs.StringVar(&c.KubeletTokenFile, "kubelet-token-file", c.KubeletTokenFile, "file with the bearer token for the kubelet's authenticated port")
	fs.StringVar(&c.KubeletCAFile, "kubelet-ca-file", c.KubeletCAFile, "file with the CA of the kubelet's serving certificate, or that certificate")
	fs.StringVar(&c.DockerSocket, "docker-socket", c.DockerSocket, "dockerd's socket, probed when the runtime is cri-dockerd")
	fs.StringVar(&c.ProcFS, "path.procfs", c.ProcFS, "where the node's /proc is mounted")
	fs.StringVar(&c.SysFS, "path.sysfs", c.SysFS, "where the node's /sys is mounted")
}

// systemdStateDir is the state directory that systemd made for the unit, ""
// when there is none.
func systemdStateDir() string {
	dir, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":")
	return dir
}
