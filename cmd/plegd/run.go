package main

import (
	"context"
	"fmt"
	"os/signal"
	"slices"
	"syscall"

	"github.com/prometheus/common/version"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/plegd/plegd/internal/daemon"
	"github.com/plegd/plegd/internal/evidence/kubelet"
	"github.com/plegd/plegd/internal/logging"
	"github.com/plegd/plegd/internal/relist"
	"github.com/plegd/plegd/internal/server"
)

func newRunCommand() *cobra.Command {
	cfg := daemon.DefaultConfig()
	level := "info"
	format := logging.JSON
	systemd := false
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon: watch the runtime and serve its findings",
		Long: `Relists the container runtime every second as the kubelet does, keeps the
kubelet's own verdict, names the reason when something is wrong, and serves it
as Prometheus metrics.

Every flag is also an environment variable: PLEGD_ and the name in capitals
with _ for - and . (--relist-period is PLEGD_RELIST_PERIOD). The flag wins.

Exit status: 0 ended by SIGTERM or SIGINT, 1 could not run, 2 wrong flag or argument`,
		Example: `  plegd run
  plegd run --runtime-endpoint=/run/crio/crio.sock --web.listen-address=127.0.0.1:20290
  PLEGD_EVENTS=hint plegd run --log.format=console`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Given = cmd.Flags().Changed
			if err := validate(&cfg, systemd); err != nil {
				return usage(err)
			}
			l, _ := zapcore.ParseLevel(level) // the flag has checked it
			log := logging.New(l, format, cmd.ErrOrStderr())
			defer func() { _ = log.Sync() }()
			return run(cmd.Context(), cfg, log)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	watchFlags(fs, &cfg)
	modes := []string{string(relist.Off), string(relist.Hint), string(relist.Evented)}
	choiceFlag(cmd, "events", "", (*string)(&cfg.Events), modes, "use of the runtime's events, hint for an early "+
		"look at the pod, evented for relists 300 s apart as kubelets 1.26 to 1.36")
	fs.DurationVar(&cfg.EventsLease, "events-lease", cfg.EventsLease,
		"how long an event stream lasts: the longest time a hung plegd can block the runtime")
	fs.BoolVar(&cfg.EventsAllowUnsafe, "events-allow-unsafe", cfg.EventsAllowUnsafe,
		"subscribe to events even where that takes them from the kubelet (containerd 1.7)")
	stateDirFlag(cmd, &cfg.StateDir, "state directory")
	socketFlag(cmd, &cfg.ControlSocket, "none")
	fs.StringArrayVar(&cfg.WebListenAddresses, "web.listen-address", cfg.WebListenAddresses,
		"address to serve /metrics on, repeatable; empty: none")
	fs.StringVar(&cfg.WebConfigFile, "web.config.file", "",
		"exporter-toolkit's configuration file for TLS and authentication")
	fs.BoolVar(&systemd, "web.systemd-socket", false,
		"use the sockets that systemd hands over instead of --web.listen-address")
	choiceFlag(cmd, "log.level", "", &level, []string{"debug", "info", "warn", "error"}, "lowest level that is logged")
	choiceFlag(cmd, "log.format", "", &format, []string{logging.JSON, logging.Console}, "format of the log")
	return cmd
}

// validate checks the configuration before anything is started, and takes over
// systemd's sockets.
func validate(cfg *daemon.Config, systemd bool) error {
	cfg.WebListenAddresses = slices.DeleteFunc(cfg.WebListenAddresses, func(a string) bool { return a == "" })
	if err := cfg.Validate(); err != nil {
		return err
	}
	var err error
	if cfg.ControlSocket != "" {
		cfg.ControlSocket, err = kubelet.ParseEndpoint(cfg.ControlSocket)
		if err != nil {
			return fmt.Errorf("--control-socket: %w", err)
		}
	}
	if systemd {
		cfg.WebListenAddresses = nil
		cfg.WebListeners, err = server.SystemdListeners()
		if err != nil {
			return err
		}
	}
	return server.ValidateWeb(cfg.WebListenAddresses, cfg.WebConfigFile)
}

func run(ctx context.Context, cfg daemon.Config, log *zap.Logger) error {
	// A journal that has gone away, and a limit on the size of files, are errors
	// of a write and not the end of plegd.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGXFSZ)
	d, err := daemon.New(cfg, build(), log)
	if err != nil {
		return err
	}
	log.Info("plegd started", zap.String("version", version.Version), zap.String("revision", version.Revision),
		zap.String("runtime_endpoint", cfg.RuntimeEndpoint), zap.Strings("listen", cfg.WebListenAddresses),
		zap.String("control_socket", cfg.ControlSocket))
	err = d.Run(ctx)
	log.Info("plegd stopped")
	return err
}
