package main

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/internal/daemon"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/server"
	"github.com/plegd/plegd/internal/view"
)

func newStatusCommand() *cobra.Command {
	socket := daemon.DefaultConfig().ControlSocket
	var output *string
	var watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the running daemon knows",
		Long:  `Asks the running daemon over its control socket.`,
		Example: `  plegd status
  plegd status --watch
  plegd status -o json | jq .reasons`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fail := func(err error) error { return &exitError{exitUnknown, err} }
			if err := fromEnvironment(cmd.Flags(), os.LookupEnv); err != nil {
				return usage(err)
			}
			print := map[string]func(io.Writer, *health.Snapshot) (int, error){"text": printText, "json": printJSON}[*output]
			show := func() (int, error) {
				doc, err := server.FetchStatus(cmd.Context(), socket)
				if err != nil {
					return exitUnknown, err
				}
				return print(cmd.OutOrStdout(), doc)
			}
			if watch {
				if f, ok := terminal(cmd.OutOrStdout()); ok && *output == "text" {
					w := &watcher{
						out:     f,
						status:  func(ctx context.Context) (*health.Snapshot, error) { return server.FetchStatus(ctx, socket) },
						history: func(ctx context.Context) (view.Recent, error) { return server.FetchHistory(ctx, socket) },
					}
					if in, ok := terminal(cmd.InOrStdin()); ok {
						w.in = in
					}
					return w.run(cmd.Context())
				}
				if *output == "json" { // documents need nothing between them, and bear nothing
					return watchPlain(cmd.Context(), func(bool) {}, cmd.ErrOrStderr(), show)
				}
				return watchPlain(cmd.Context(), textHead(cmd.OutOrStdout(), time.Now), cmd.OutOrStdout(), show)
			}
			code, err := show()
			if err != nil {
				return fail(err)
			}
			return exit(code)
		},
	}
	fs := cmd.Flags()
	output = outputFlag(cmd, "text", "json")
	fs.BoolVarP(&watch, "watch", "w", false, "show it again every second until interrupted")
	fs.StringVar(&socket, "control-socket", socket, "the daemon's control socket")
	return cmd
}
