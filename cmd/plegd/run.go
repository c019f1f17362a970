package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/common/version"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/plegd/plegd/internal/daemon"
	"github.com/plegd/plegd/internal/logging"
	"github.com/plegd/plegd/internal/relist"
	"github.com/plegd/plegd/internal/server"
)

func newRunCommand() *cobra.Command {
	cfg := daemon.DefaultConfig()
	cfg.StateDir = defaultStateDir()
	level, format := "info", "json"
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Watch the runtime and serve what it finds: the daemon",
		Long: `Relists the container runtime every second as the kubelet does, keeps the
kubelet's own verdict, names the reason when something is wrong, and serves it
as Prometheus metrics.

Every flag is also an environment variable: PLEGD_ and the name in capitals
with _ for - and . (--relist-period is PLEGD_RELIST_PERIOD). The flag wins.`,
		Example: `  plegd run
  plegd run --runtime-endpoint=/run/crio/crio.sock --web.listen-address=127.0.0.1:20290
  PLEGD_EVENTS=hint plegd run --log.format=console`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd.Flags(), os.LookupEnv); err != nil {
				return usage(err)
			}
			cfg.Given = cmd.Flags().Changed
			if err := validate(&cfg); err != nil {
				return usage(err)
			}
			l, _ := zapcore.ParseLevel(level) // the flag has checked it
			log := logging.New(l, format, cmd.ErrOrStderr())
			defer func() { _ = log.Sync() }()
			for _, name := range unknownVariables(cmd.Flags(), os.Environ()) {
				log.Warn("unknown environment variable, it has no effect", zap.String("variable", name))
			}
			return run(cmd.Context(), cfg, log)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	watchFlags(fs, &cfg)
	choiceFlag(cmd, "events", (*string)(&cfg.Events), modes(), "use of the runtime's events: off, hint (an early look at the pod) or evented (relists 300 s apart, as kubelets 1.26 to 1.36)")
	fs.DurationVar(&cfg.EventsLease, "events-lease", cfg.EventsLease, "how long an event stream lasts: the longest time a hung plegd can block the runtime")
	fs.BoolVar(&cfg.EventsAllowUnsafe, "events-allow-unsafe", cfg.EventsAllowUnsafe, "subscribe to events even where that takes them from the kubelet (containerd 1.7)")
	fs.StringVar(&cfg.StateDir, "state-dir", cfg.StateDir, "directory for what must survive a restart")
	fs.StringVar(&cfg.ControlSocket, "control-socket", cfg.ControlSocket, "unix socket for plegd status and plegd check; empty: none")
	fs.StringArrayVar(&cfg.WebListenAddresses, "web.listen-address", cfg.WebListenAddresses, "address to serve /metrics on, repeatable; empty: none")
	fs.StringVar(&cfg.WebConfigFile, "web.config.file", "", "exporter-toolkit's configuration file for TLS and authentication")
	fs.BoolVar(&cfg.WebSystemdSocket, "web.systemd-socket", false, "use the sockets that systemd hands over instead of --web.listen-address")
	choiceFlag(cmd, "log.level", &level, []string{"debug", "info", "warn", "error"}, "lowest level that is logged: debug, info, warn or error")
	choiceFlag(cmd, "log.format", &format, []string{"json", "console"}, "format of the log: json or console")
	return cmd
}

// modes are the values of --events.
func modes() []string {
	var out []string
	for _, m := range relist.Modes() {
		out = append(out, string(m))
	}
	return out
}

// validate checks the configuration before anything is started.
func validate(cfg *daemon.Config) error {
	addresses := cfg.WebListenAddresses[:0:0]
	for _, a := range cfg.WebListenAddresses {
		if a != "" {
			addresses = append(addresses, a)
		}
	}
	cfg.WebListenAddresses = addresses
	if err := cfg.Validate(); err != nil {
		return err
	}
	if err := server.ValidateControlSocket(cfg.ControlSocket); err != nil {
		return err
	}
	if cfg.WebSystemdSocket {
		if err := server.ValidateSystemdSocket(); err != nil {
			return err
		}
	}
	return server.ValidateWebConfig(cfg.WebListenAddresses, cfg.WebConfigFile)
}

func run(ctx context.Context, cfg daemon.Config, log *zap.Logger) error {
	// A journal that has gone away, and a limit on the size of files, are errors
	// of a write and not the end of plegd.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGXFSZ)
	d, err := daemon.New(cfg, build(), log)
	if err != nil {
		return err
	}
	if err := d.Remember(build().Version); err != nil {
		return err
	}
	d.Serve(build())
	log.Info("plegd started", zap.String("version", version.Version), zap.String("revision", version.Revision),
		zap.String("runtime_endpoint", cfg.RuntimeEndpoint), zap.Strings("listen", cfg.WebListenAddresses),
		zap.String("control_socket", cfg.ControlSocket))
	err = d.Run(ctx)
	log.Info("plegd stopped")
	return err
}
