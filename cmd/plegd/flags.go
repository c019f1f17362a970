package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plegd/plegd/internal/daemon"
	"github.com/plegd/plegd/internal/server"
)

// envName is the environment variable of a flag.
func envName(flag string) string {
	return "PLEGD_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(flag))
}

// fromEnvironment sets every flag that the command line left alone and the
// environment names. The flag wins. An empty variable counts as set: it is how
// a unit switches something off.
func fromEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var err error
	flags.VisitAll(func(f *pflag.Flag) {
		value, ok := lookup(envName(f.Name))
		if !ok || f.Changed || err != nil || f.Name == "help" || f.Name == "version" {
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

// flagError puts pflag's error about a wrong value as the flag, the value, and what would be right.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	flag := invalid.GetFlag()
	want := map[string]string{
		"duration": "a duration such as 500ms, 1s or 3m",
		"int":      "a whole number",
		"float64":  "a fraction, 0 to 1, such as 0.01",
		"bool":     "true or false",
	}[flag.Value.Type()]
	if want == "" {
		return fmt.Errorf("--%s: %q: %w", flag.Name, invalid.GetValue(), errors.Unwrap(invalid))
	}
	return fmt.Errorf("--%s: %q: want %s", flag.Name, invalid.GetValue(), want)
}

// choice is the value of a flag that takes one of a few words.
type choice struct {
	value   *string
	allowed []string
}

func (c *choice) String() string { return *c.value }

func (c *choice) Set(s string) error {
	if !slices.Contains(c.allowed, s) {
		return errors.New("want " + words(c.allowed))
	}
	*c.value = s
	return nil
}

func (c *choice) Type() string { return "word" }

// words lists words: "a, b or c".
func words(list []string) string {
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " or " + list[last]
}

// choiceFlag adds a flag that takes one of a few words, which complete.
func choiceFlag(cmd *cobra.Command, name, short string, value *string, allowed []string, help string) {
	cmd.Flags().VarP(&choice{value, allowed}, name, short, help+": "+words(allowed))
	// The only error is of a flag that cmd does not have.
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp))
}

// outputFlag adds -o to cmd. The first of the formats is the default.
func outputFlag(cmd *cobra.Command, formats ...string) *string {
	output := formats[0]
	choiceFlag(cmd, "output", "o", &output, formats, "output format")
	return &output
}

// socketFlag adds the flag of the control socket.
func socketFlag(cmd *cobra.Command, socket *string, empty string) {
	*socket = daemon.DefaultConfig().ControlSocket
	cmd.Flags().StringVar(socket, "control-socket", *socket, "the daemon's control socket; empty: "+empty)
}

// urlFlags adds the flags that ask a daemon over HTTP. All but --url are named as curl's.
func urlFlags(cmd *cobra.Command, c *server.Client) {
	fs := cmd.Flags()
	fs.StringVar(&c.URL, "url", "", "ask this daemon over HTTP, as in http://NODE:20290: the public summary unless it "+
		"authenticates the client")
	fs.StringVar(&c.CACert, "cacert", "", "certificates that --url's is verified with, in PEM")
	fs.StringVar(&c.Cert, "cert", "", "client certificate for --url, in PEM")
	fs.StringVar(&c.Key, "key", "", "its key")
	fs.StringVarP(&c.User, "user", "u", "", "NAME:PASSWORD for --url")
	fs.BoolVarP(&c.Insecure, "insecure", "k", false, "do not verify --url's certificate")
}

// stateDirFlag adds the flag of the state directory. systemd sets a directory for its unit.
func stateDirFlag(cmd *cobra.Command, dir *string, help string) {
	*dir = daemon.DefaultConfig().StateDir
	if first, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":"); first != "" {
		*dir = first
	}
	cmd.Flags().StringVar(dir, "state-dir", *dir, help)
}

// watchFlags adds the flags that run, check and bundle share: the watched objects, and
// the method.
func watchFlags(fs *pflag.FlagSet, c *daemon.Config) {
	fs.StringVar(&c.RuntimeEndpoint, "runtime-endpoint", c.RuntimeEndpoint, "runtime socket, a path or a unix:// URL; "+
		"empty: what the kubelet uses, else the first usual place that serves runtime.v1")
	fs.DurationVar(&c.RelistPeriod, "relist-period", c.RelistPeriod, "from the end of a relist to the start of the next")
	fs.DurationVar(&c.RelistThreshold, "relist-threshold", c.RelistThreshold, "age of a relist that makes PLEG unhealthy")
	fs.DurationVar(&c.RPCTimeout, "rpc-timeout", c.RPCTimeout, "the kubelet's --runtime-request-timeout")
	fs.DurationVar(&c.NodeStatusPeriod, "node-status-period", c.NodeStatusPeriod, "kubelet's nodeStatusUpdateFrequency")
	fs.DurationVar(&c.ProbePeriod, "probe-period", c.ProbePeriod, "time between two fresh connections to the runtime")
	fs.DurationVar(&c.ProbeTimeout, "probe-timeout", c.ProbeTimeout, "limit for each stage of a fresh connection")
	fs.StringVar(&c.KubeletHealthzURL, "kubelet-healthz-url", c.KubeletHealthzURL, "the kubelet's healthz; empty: none")
	fs.StringVar(&c.KubeletMetricsURL, "kubelet-metrics-url", c.KubeletMetricsURL, "the kubelet's /metrics, for its own "+
		"last seen, as in https://127.0.0.1:10250/metrics; empty: none")
	fs.StringVar(&c.KubeletTokenFile, "kubelet-token-file", c.KubeletTokenFile, "bearer token for the kubelet's port")
	fs.StringVar(&c.KubeletCAFile, "kubelet-ca-file", c.KubeletCAFile, "the kubelet's serving certificate, or its CA")
	fs.StringVar(&c.DockerSocket, "docker-socket", c.DockerSocket, "dockerd's socket, probed behind cri-dockerd")
	fs.StringVar(&c.ProcFS, "path.procfs", c.ProcFS, "where the node's /proc is mounted")
	fs.StringVar(&c.SysFS, "path.sysfs", c.SysFS, "where the node's /sys is mounted")
}

// usage marks err as a wrong flag or argument: nothing was started. nil stays nil.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{err, codeOfUsage}
}

// usageCode is the exit code of a wrong flag or argument of a command.
func usageCode(cmd *cobra.Command, args []string) int {
	switch cmd.CommandPath() {
	case "plegd run", "plegd completion":
		return exitRunUsage
	case "plegd check":
		switch typedOutput(args) {
		case "npd":
			return npdUnknown
		case "nagios":
			return exitUnknown
		}
	}
	return exitUsage
}

// typedOutput returns the value of the last -o or --output among the words that were typed, or
// of its variable. The error may be in a flag before it, so the flags have not been parsed.
func typedOutput(args []string) string {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.SetOutput(io.Discard)
	format := flags.StringP("output", "o", os.Getenv(envName("output")), "")
	_ = flags.Parse(args) // of what cannot be parsed nothing is known
	return *format
}

// setUsage makes every wrong flag and argument of cmd and of the commands below
// it a usage error of one line, with a suggestion for a mistyped name.
func setUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var meant string
		if unknown := new(pflag.NotExistError); errors.As(err, &unknown) {
			var names []string
			cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
			meant = didYouMean("--"+unknown.GetSpecifiedName(), names)
		}
		return usage(fmt.Errorf("%w%s (see %s --help)", flagError(err), meant, cmd.CommandPath()))
	})
	check := cmd.Args
	if check == nil {
		check = cobra.ArbitraryArgs
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		switch {
		case err == nil:
			return nil
		case len(args) > 0 && cmd.HasAvailableSubCommands() && cmd.ValidArgsFunction == nil:
			var names []string
			for _, c := range cmd.Commands() {
				names = append(names, c.Name())
			}
			err = fmt.Errorf("unknown command %q%s", args[0], didYouMean(args[0], names))
		default:
			err = fmt.Errorf("arguments %q: want %s", args, cmd.UseLine())
		}
		return usage(fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath()))
	}
	for _, c := range cmd.Commands() {
		setUsage(c)
	}
}

// didYouMean suggests names for a mistyped one, by cobra's own measure: it suggests
// commands, so the names are made some.
func didYouMean(typed string, names []string) string {
	parent := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, n := range names {
		parent.AddCommand(&cobra.Command{Use: n, Run: func(*cobra.Command, []string) {}})
	}
	suggestions := parent.SuggestionsFor(typed)
	if len(suggestions) == 0 {
		return ""
	}
	return ": did you mean " + strings.Join(suggestions, " or ") + "?"
}
