package kubelet

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v2"

	"github.com/plegd/plegd/internal/health"
)

// Settings is what plegd needs of the kubelet's configuration.
type Settings struct {
	// Endpoint is its containerRuntimeEndpoint, "" for its default.
	Endpoint string
	// NodeStatusPeriod is its nodeStatusUpdateFrequency, RequestTimeout its
	// runtimeRequestTimeout; 0 for its default.
	NodeStatusPeriod time.Duration
	RequestTimeout   time.Duration
	// EventedPLEG is its feature gate of that name.
	EventedPLEG bool
	// From says where each of them was set, by the name of the setting in the
	// configuration file.
	From map[string]string
}

// maxDropIns bounds the files that are read of the drop-in directory.
const maxDropIns = 256

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
		if err := s.readFile(root, f); err != nil && !errors.Is(err, os.ErrNotExist) {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", f, err))
		}
	}
	return s, errors.Join(failed, s.readArgs(args))
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

func (s *Settings) readFile(root, file string) error {
	r, err := os.Open(root + file)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	b, err := io.ReadAll(io.LimitReader(r, maxConfigBytes))
	if err != nil {
		return err
	}
	var c struct {
		Endpoint         string          `yaml:"containerRuntimeEndpoint"`
		NodeStatusPeriod string          `yaml:"nodeStatusUpdateFrequency"`
		RequestTimeout   string          `yaml:"runtimeRequestTimeout"`
		FeatureGates     map[string]bool `yaml:"featureGates"`
	}
	if err := yaml.Unmarshal(b, &c); err != nil {
		return err
	}
	if c.Endpoint != "" {
		s.Endpoint, s.From[health.SettingEndpoint] = c.Endpoint, file
	}
	if on, given := c.FeatureGates["EventedPLEG"]; given {
		s.EventedPLEG, s.From[health.SettingEventedPLEG] = on, file
	}
	return errors.Join(
		s.setDuration(&s.NodeStatusPeriod, health.SettingNodeStatusPeriod, c.NodeStatusPeriod, file),
		s.setDuration(&s.RequestTimeout, health.SettingRequestTimeout, c.RequestTimeout, file))
}

func (s *Settings) readArgs(args []string) error {
	const from = "the kubelet's arguments"
	if e := flagValue(args, "container-runtime-endpoint"); e != "" {
		s.Endpoint, s.From[health.SettingEndpoint] = e, from
	}
	for gate := range strings.SplitSeq(strings.Join(flagValues(args, "feature-gates"), ","), ",") {
		if on, given := strings.CutPrefix(gate, "EventedPLEG="); given {
			s.EventedPLEG, s.From[health.SettingEventedPLEG] = strings.EqualFold(on, "true"), from
		}
	}
	return errors.Join(
		s.setDuration(&s.NodeStatusPeriod, health.SettingNodeStatusPeriod, flagValue(args, "node-status-update-frequency"), from),
		s.setDuration(&s.RequestTimeout, health.SettingRequestTimeout, flagValue(args, "runtime-request-timeout"), from))
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
