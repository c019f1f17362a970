package kubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v2"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

const (
	defaultConfig = "/var/lib/kubelet/config.yaml"
	// byArguments is the origin of a setting that is no file's.
	byArguments = "the kubelet's arguments"
	// maxConfigBytes bounds one configuration file, maxDropIns the files of the drop-in
	// directory.
	maxConfigBytes = 1 << 20
	maxDropIns     = 256
)

// Settings is the part of the kubelet's configuration that plegd needs.
type Settings struct {
	// Endpoint is its containerRuntimeEndpoint, "" for its default.
	Endpoint string
	// NodeStatusPeriod is its nodeStatusUpdateFrequency, RequestTimeout its
	// runtimeRequestTimeout; 0 for its default.
	NodeStatusPeriod, RequestTimeout time.Duration
	// EventedPLEG is its feature gate of that name.
	EventedPLEG bool
	// From is where each of them was set, by the name of the setting in the
	// configuration file.
	From map[string]string
}

// ReadSettings reads the settings of a kubelet with these arguments: its
// configuration file, then each *.conf of its drop-in directory in order, then
// its arguments; a later one wins. root is put before every path; "" outside
// tests. The error says which file could not be read; the others count.
func ReadSettings(root string, args []string) (Settings, error) {
	s := Settings{From: map[string]string{}}
	file := flagValue(args, "config")
	if !filepath.IsAbs(file) {
		file = defaultConfig
	}
	files := []string{file}
	if dir := flagValue(args, "config-dir"); filepath.IsAbs(dir) {
		files = append(files, dropIns(root, dir)...)
	}
	var failed error
	for _, f := range files {
		if err := s.readFile(root, f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", f, err))
		}
	}
	gates := map[string]bool{}
	for gate := range strings.SplitSeq(strings.Join(node.ArgValues(args, "feature-gates"), ","), ",") {
		name, on, _ := strings.Cut(gate, "=")
		gates[name] = strings.EqualFold(on, "true")
	}
	return s, errors.Join(failed, s.set(config{
		Endpoint:         flagValue(args, "container-runtime-endpoint"),
		NodeStatusPeriod: flagValue(args, "node-status-update-frequency"),
		RequestTimeout:   flagValue(args, "runtime-request-timeout"),
		FeatureGates:     gates,
	}, byArguments))
}

// dropIns returns the *.conf below a directory, in the order of the kubelet's walk
// (cmd/kubelet/app/server.go, mergeKubeletConfigurations).
func dropIns(root, dir string) (files []string) {
	_ = filepath.WalkDir(root+dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case len(files) == maxDropIns:
			return filepath.SkipAll
		case err == nil && !d.IsDir() && filepath.Ext(path) == ".conf":
			files = append(files, strings.TrimPrefix(path, root))
		}
		return nil // what cannot be read is left out
	})
	return files
}

// config is one file of the kubelet's configuration, or its arguments.
type config struct {
	Endpoint         string          `yaml:"containerRuntimeEndpoint"`
	NodeStatusPeriod string          `yaml:"nodeStatusUpdateFrequency"`
	RequestTimeout   string          `yaml:"runtimeRequestTimeout"`
	FeatureGates     map[string]bool `yaml:"featureGates"`
}

func (s *Settings) readFile(root, file string) error {
	b, err := node.ReadLimited(root+file, maxConfigBytes)
	if err != nil {
		return err
	}
	var c config
	if err := yaml.Unmarshal(b, &c); err != nil {
		return err
	}
	return s.set(c, file)
}

func (s *Settings) set(c config, from string) error {
	if c.Endpoint != "" {
		s.Endpoint, s.From[health.SettingEndpoint] = c.Endpoint, from
	}
	if on, given := c.FeatureGates["EventedPLEG"]; given {
		s.EventedPLEG, s.From[health.SettingEventedPLEG] = on, from
	}
	return errors.Join(
		s.setDuration(&s.NodeStatusPeriod, health.SettingNodeStatusPeriod, c.NodeStatusPeriod, from),
		s.setDuration(&s.RequestTimeout, health.SettingRequestTimeout, c.RequestTimeout, from))
}

// setDuration sets a duration; an empty value and 0 leave it as it is, as in the
// kubelet.
func (s *Settings) setDuration(to *time.Duration, setting, value, from string) error {
	if value == "" {
		return nil
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return fmt.Errorf("%s %q: %w", setting, value, err)
	}
	if d > 0 {
		*to, s.From[setting] = d, from
	}
	return nil
}

const (
	k3sEndpoint = "/run/k3s/containerd/containerd.sock"
	k3sDropIns  = "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d"
)

// microk8sDirs are the variables in the arguments file of microk8s.
var microk8sDirs = map[string]string{
	"SNAP_DATA": "/var/snap/microk8s/current", "SNAP_COMMON": "/var/snap/microk8s/common",
}

// Args returns the kubelet's arguments of a process that has a kubelet built in: of k3s
// those in --kubelet-arg and its defaults, of microk8s those in the file of
// --kubelet-args-file. Those of a plain kubelet are returned as they are.
func Args(comm string, args []string) []string {
	if len(args) == 0 {
		return nil
	}
	switch {
	case strings.HasPrefix(comm, "k3s"):
		out := []string{args[0], "--container-runtime-endpoint=" + k3sEndpoint, "--config-dir=" + k3sDropIns}
		for _, arg := range node.ArgValues(args, "kubelet-arg") {
			out = append(out, "--"+strings.TrimLeft(arg, "-"))
		}
		if endpoint := flagValue(args, "container-runtime-endpoint"); endpoint != "" {
			out = append(out, "--container-runtime-endpoint="+endpoint)
		}
		return out
	case comm == "kubelite":
		file := flagValue(args, "kubelet-args-file")
		b, err := node.ReadLimited(file, maxConfigBytes)
		if !filepath.IsAbs(file) || err != nil {
			return args[:1]
		}
		expanded := os.Expand(string(b), func(name string) string { return microk8sDirs[name] })
		return append([]string{args[0]}, strings.Fields(expanded)...)
	}
	return args
}

// flagValue returns the last value of a flag, "" where it is not given.
func flagValue(args []string, name string) (last string) {
	for _, v := range node.ArgValues(args, name) {
		last = v
	}
	return last
}
