package kubelet

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v2"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/plain"
	"github.com/plegd/plegd/internal/proc"
)

const (
	defaultConfig = "/var/lib/kubelet/config.yaml"
	// maxConfigBytes bounds one configuration file, maxDropIns the files of the drop-in
	// directory.
	maxConfigBytes = 1 << 20
	maxDropIns     = 256
)

// config is one file of the kubelet's configuration, or its arguments.
type config struct {
	Endpoint         string          `yaml:"containerRuntimeEndpoint"`
	NodeStatusPeriod time.Duration   `yaml:"nodeStatusUpdateFrequency"`
	RequestTimeout   time.Duration   `yaml:"runtimeRequestTimeout"`
	FeatureGates     map[string]bool `yaml:"featureGates"`
}

// ReadSettings reads the settings of a kubelet with these arguments, and the endpoint of
// its runtime, "" for its default: its configuration file, then each *.conf of its drop-in
// directory in order, then its arguments; a later one wins. root is put before every path;
// "" outside tests. Problem says which file could not be read; the others count.
func ReadSettings(root string, args []string) (v facts.KubeletProcess, endpoint string) {
	v.From = map[string]string{}
	set := func(c config, from string) {
		if c.Endpoint != "" {
			endpoint, v.From[facts.SettingEndpoint] = c.Endpoint, from
		}
		if c.NodeStatusPeriod > 0 { // 0 leaves it as it is, as in the kubelet
			v.NodeStatusPeriod, v.From[facts.SettingNodeStatusPeriod] = c.NodeStatusPeriod, from
		}
		if c.RequestTimeout > 0 {
			v.RequestTimeout, v.From[facts.SettingRequestTimeout] = c.RequestTimeout, from
		}
		if on, given := c.FeatureGates["EventedPLEG"]; given {
			v.EventedPLEG, v.From[facts.SettingEventedPLEG] = on, from
		}
	}
	file := proc.ArgValue(args, "config")
	if !filepath.IsAbs(file) {
		file = defaultConfig
	}
	var failed error
	for _, f := range append([]string{file}, dropIns(root, proc.ArgValue(args, "config-dir"))...) {
		var c config
		b, err := proc.ReadLimited(root+f, maxConfigBytes)
		if err == nil {
			err = yaml.Unmarshal(b, &c) // an invalid value leaves the others
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", f, err))
		}
		set(c, f)
	}
	c := config{Endpoint: proc.ArgValue(args, "container-runtime-endpoint"), FeatureGates: map[string]bool{}}
	for flag, to := range map[string]*time.Duration{
		"node-status-update-frequency": &c.NodeStatusPeriod, "runtime-request-timeout": &c.RequestTimeout,
	} {
		var err error
		if *to, err = time.ParseDuration(cmp.Or(proc.ArgValue(args, flag), "0")); err != nil {
			failed = errors.Join(failed, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	for gate := range strings.SplitSeq(strings.Join(proc.ArgValues(args, "feature-gates"), ","), ",") {
		name, on, _ := strings.Cut(gate, "=")
		c.FeatureGates[name] = strings.EqualFold(on, "true")
	}
	if set(c, "the kubelet's arguments"); failed != nil {
		v.Problem = plain.Cut(failed.Error())
	}
	return v, endpoint
}

// dropIns returns the *.conf below a directory, in the order of the kubelet's walk
// (cmd/kubelet/app/server.go, mergeKubeletConfigurations).
func dropIns(root, dir string) (files []string) {
	if !filepath.IsAbs(dir) {
		return nil
	}
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

const (
	k3sEndpoint = "/run/k3s/containerd/containerd.sock"
	k3sDropIns  = "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d"
)

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
		for _, arg := range proc.ArgValues(args, "kubelet-arg") {
			out = append(out, "--"+strings.TrimLeft(arg, "-"))
		}
		if endpoint := proc.ArgValue(args, "container-runtime-endpoint"); endpoint != "" {
			out = append(out, "--container-runtime-endpoint="+endpoint)
		}
		return out
	case comm == "kubelite":
		file := proc.ArgValue(args, "kubelet-args-file")
		b, err := proc.ReadLimited(file, maxConfigBytes)
		if !filepath.IsAbs(file) || err != nil {
			return args[:1]
		}
		const dir = "/var/snap/microk8s/"
		expand := strings.NewReplacer("${SNAP_DATA}", dir+"current", "${SNAP_COMMON}", dir+"common")
		return append([]string{args[0]}, strings.Fields(expand.Replace(string(b)))...)
	}
	return args
}
