package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v2"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/plain"
	"github.com/plegd/plegd/internal/proc"
)

const (
	defaultConfig = "/var/lib/kubelet/config.yaml"
	fromArguments = "the kubelet's arguments"
	// defaultCertDir is the default of --cert-dir.
	defaultCertDir = "/var/lib/kubelet/pki"
)

// config is one file of the kubelet's configuration, or its arguments.
type config struct {
	Endpoint         string          `yaml:"containerRuntimeEndpoint"`
	NodeStatusPeriod time.Duration   `yaml:"nodeStatusUpdateFrequency"`
	RequestTimeout   time.Duration   `yaml:"runtimeRequestTimeout"`
	HealthzPort      *int            `yaml:"healthzPort"`
	LeaseSeconds     int             `yaml:"nodeLeaseDurationSeconds"`
	FeatureGates     map[string]bool `yaml:"featureGates"`
}

// settings are what a kubelet is set to, and where its other files are.
type settings struct {
	facts.KubeletProcess

	kubeconfig string        // absolute, "" for none or an unknown one
	certDir    string        // of the certificates that it has been issued
	tree       place         // the kubelet's files
	lease      time.Duration // nodeLeaseDurationSeconds, 0 for the default
}

// settingsReader reads the settings of kubelets.
type settingsReader struct {
	procfs string
	root   string // put before every path; "" outside tests
	files  namedFiles
}

// read reads the settings of a kubelet: its configuration file, then each *.conf of its
// drop-in directory in order, then its arguments; a later one wins. Without a process, pid
// 0, it reads the usual configuration file. Problem says what could not be read; the rest
// counts.
func (r *settingsReader) read(ctx context.Context, pid int, comm string, arguments []string) settings {
	tree := r.place(pid)
	args, failed := r.kubeletArguments(ctx, tree, comm, arguments)
	b := builder{gates: map[string]gate{}}
	b.From = map[string]string{}
	b.fail(failed)
	file := proc.ArgValue(args, "config")
	if pid == 0 {
		file = defaultConfig
	}
	working := r.workingDirectory(pid)
	directory := proc.ArgValue(args, "config-dir")
	for _, f := range r.files.read(ctx, tree, absolute(working, file), absolute(working, directory)) {
		b.file(f, tree)
	}
	b.arguments(args)
	out := settings{KubeletProcess: b.done(), tree: tree, kubeconfig: absolute(working, kubeconfig(args)), lease: b.lease}
	out.certDir = absolute(working, cmp.Or(proc.ArgValue(args, "cert-dir"), defaultCertDir))
	out.Standalone = isPlainKubelet(comm) && len(args) > 0 && kubeconfig(args) == ""
	return out
}

// kubeconfig returns the path of the kubelet's kubeconfig, "" for none. While its first
// certificate has not been issued the kubelet uses the bootstrap file.
func kubeconfig(args []string) string {
	if file := proc.ArgValue(args, "kubeconfig"); file != "" {
		return file
	}
	return proc.ArgValue(args, "bootstrap-kubeconfig")
}

// place returns the tree of files that the kubelet sees.
func (r *settingsReader) place(pid int) place {
	if r.root != "" || pid == 0 {
		return place{root: r.root}
	}
	root := proc.Path(r.procfs, pid, "root")
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return place{hidden: !errors.Is(err, fs.ErrNotExist)}
	}
	_ = unix.Close(fd) // a path descriptor
	return place{root: root}
}

// workingDirectory returns the directory to which a process's paths are relative, "" where
// that cannot be read.
func (r *settingsReader) workingDirectory(pid int) string {
	working, err := proc.Link(proc.Path(r.procfs, pid, "cwd"))
	if err != nil || !filepath.IsAbs(working) {
		return ""
	}
	return working
}

// absolute returns a path of a process with a working directory. It is relative still where
// the directory is not known.
func absolute(working, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(working, path)
}

// builder collects settings from several places.
type builder struct {
	facts.KubeletProcess

	gates    map[string]gate
	lease    time.Duration
	problems []string
}

type gate struct {
	enabled bool
	source  string
}

func (b *builder) fail(err error) {
	if err != nil {
		b.problems = append(b.problems, err.Error())
	}
}

// file adds a configuration file.
func (b *builder) file(f namedFile, tree place) {
	switch {
	case !filepath.IsAbs(f.path):
		b.fail(fmt.Errorf("%s: a relative path, and the kubelet's working directory cannot be read", f.path))
		return
	case errors.Is(f.err, fs.ErrNotExist) && !tree.hidden && (f.path == defaultConfig || f.path == k3sDropIns):
		return // no argument names it
	case f.err != nil:
		b.fail(f.err)
		return
	}
	var c config
	err := yaml.Unmarshal(f.content, &c) // an invalid value leaves the others
	if err != nil {
		b.fail(fmt.Errorf("%s: not valid%s", f.path, lineOf(err)))
	}
	b.add(c, f.path)
}

var yamlLine = regexp.MustCompile(`line (\d+)`)

// lineOf returns the line that a YAML error names, in words. The error itself quotes the
// file, which may be a secret.
func lineOf(err error) string {
	line := yamlLine.FindStringSubmatch(err.Error())
	if line == nil {
		return ""
	}
	return " in line " + line[1]
}

// arguments adds the kubelet's arguments.
func (b *builder) arguments(args []string) {
	c := config{
		Endpoint:         proc.ArgValue(args, "container-runtime-endpoint"),
		NodeStatusPeriod: b.duration(args, "node-status-update-frequency"),
		RequestTimeout:   b.duration(args, "runtime-request-timeout"),
		FeatureGates:     map[string]bool{},
	}
	port, err := strconv.Atoi(proc.ArgValue(args, "healthz-port"))
	if err == nil {
		c.HealthzPort = &port
	}
	for given := range strings.SplitSeq(strings.Join(proc.ArgValues(args, "feature-gates"), ","), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(given), "=")
		enabled, err := strconv.ParseBool(value)
		if err == nil {
			c.FeatureGates[name] = enabled
		}
	}
	b.add(c, fromArguments)
}

// duration returns the value of an argument, 0 where it is not given or not valid.
func (b *builder) duration(args []string, name string) time.Duration {
	value := proc.ArgValue(args, name)
	if value == "" {
		return 0
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		b.fail(fmt.Errorf("--%s: not a duration", name))
	}
	return d
}

// add takes over what a file, or the arguments, set.
func (b *builder) add(c config, source string) {
	if c.Endpoint != "" {
		b.Endpoint = c.Endpoint
		b.From[facts.SettingEndpoint] = source
	}
	if c.NodeStatusPeriod > 0 { // 0 leaves it as it is, as in the kubelet
		b.NodeStatusPeriod = c.NodeStatusPeriod
		b.From[facts.SettingNodeStatusPeriod] = source
	}
	if c.RequestTimeout > 0 {
		b.RequestTimeout = c.RequestTimeout
		b.From[facts.SettingRequestTimeout] = source
	}
	if c.LeaseSeconds > 0 {
		b.lease = time.Duration(c.LeaseSeconds) * time.Second
	}
	if c.HealthzPort != nil {
		b.HealthzPort = c.HealthzPort
		b.From[facts.SettingHealthzPort] = source
	}
	for name, enabled := range c.FeatureGates {
		b.gates[name] = gate{enabled: enabled, source: source}
	}
}

// gate returns whether a feature gate is set, and to what: by its own name or, without that,
// by the name for all of its stage.
func (b *builder) gate(name, stage, setting string) (enabled, given bool) {
	set, given := b.gates[name]
	if !given {
		set, given = b.gates[stage]
	}
	if given {
		b.From[setting] = set.source
	}
	return set.enabled, given
}

func (b *builder) done() facts.KubeletProcess {
	out := b.KubeletProcess
	out.EventedPLEG, _ = b.gate("EventedPLEG", "AllAlpha", facts.SettingEventedPLEG)
	onDemand, given := b.gate("PLEGOnDemandRelist", "AllBeta", facts.SettingOnDemandRelist)
	if given {
		out.OnDemandRelist = &onDemand
	}
	out.Problem = plain.Cut(strings.Join(b.problems, "; "))
	return out
}

const (
	k3sEndpoint   = "/run/k3s/containerd/containerd.sock"
	k3sDropIns    = "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d"
	k3sKubeconfig = "/var/lib/rancher/k3s/agent/kubelet.kubeconfig"
)

func isPlainKubelet(comm string) bool { return comm == "kubelet" }

// kubeletArguments returns the kubelet's arguments of a process that has a kubelet built in:
// of k3s those in --kubelet-arg and its defaults, of microk8s those in the file of
// --kubelet-args-file. Those of a plain kubelet are returned as they are.
func (r *settingsReader) kubeletArguments(ctx context.Context, tree place, comm string, args []string) ([]string, error) {
	switch {
	case len(args) == 0:
		return nil, nil
	case strings.HasPrefix(comm, "k3s"):
		return k3sArguments(args), nil
	case comm == "kubelite":
		return r.microk8sArguments(ctx, tree, args)
	}
	return args, nil
}

func k3sArguments(args []string) []string {
	out := []string{
		args[0], "--container-runtime-endpoint=" + k3sEndpoint, "--config-dir=" + k3sDropIns, "--kubeconfig=" + k3sKubeconfig,
	}
	for _, arg := range proc.ArgValues(args, "kubelet-arg") {
		out = append(out, "--"+strings.TrimLeft(arg, "-"))
	}
	if endpoint := proc.ArgValue(args, "container-runtime-endpoint"); endpoint != "" {
		out = append(out, "--container-runtime-endpoint="+endpoint)
	}
	return out
}

func (r *settingsReader) microk8sArguments(ctx context.Context, tree place, args []string) ([]string, error) {
	file := proc.ArgValue(args, "kubelet-args-file")
	if !filepath.IsAbs(file) {
		return args[:1], errors.New("--kubelet-args-file: not given, or relative")
	}
	b, err := r.files.one(ctx, tree, file)
	if err != nil {
		return args[:1], err
	}
	const dir = "/var/snap/microk8s/"
	expand := strings.NewReplacer("${SNAP_DATA}", dir+"current", "${SNAP_COMMON}", dir+"common")
	return append([]string{args[0]}, strings.Fields(expand.Replace(string(b)))...), nil
}
