package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/internal/daemon"
	"github.com/plegd/plegd/internal/exporter"
)

// watchPeriod is the time between two looks of status --watch.
const watchPeriod = time.Second

func newStatusCommand() *cobra.Command {
	socket := daemon.DefaultConfig().ControlSocket
	var output string
	var watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the running daemon knows",
		Long: `Asks the running daemon over its control socket.

Exit: as check: 0 healthy, 1 degraded, 2 unhealthy, 3 no daemon or could not tell.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fail := func(err error) error { return &exitError{exitUnknown, err} }
			if err := fromEnvironment(cmd.Flags(), os.LookupEnv); err != nil {
				return fail(err)
			}
			print, ok := map[string]func(io.Writer, *exporter.StatusDocument) (int, error){"text": printText, "json": printJSON}[output]
			if !ok {
				return fail(fmt.Errorf("--output: %q: want text or json", output))
			}
			show := func() (int, error) {
				doc, err := exporter.FetchStatus(cmd.Context(), socket)
				if err != nil {
					return exitUnknown, err
				}
				return print(cmd.OutOrStdout(), doc)
			}
			if watch {
				return watchStatus(cmd.Context(), cmd.OutOrStdout(), show)
			}
			code, err := show()
			if err != nil {
				return fail(err)
			}
			return exit(code)
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&output, "output", "o", "text", "text or json")
	fs.BoolVarP(&watch, "watch", "w", false, "show it again every second until interrupted")
	fs.StringVar(&socket, "control-socket", socket, "the daemon's control socket")
	return cmd
}

// watchStatus shows the status every second until ctx ends. A daemon that is
// away for a moment is said so, and asked again.
func watchStatus(ctx context.Context, w io.Writer, show func() (int, error)) error {
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	for {
		if isTerminal(w) {
			_, _ = io.WriteString(w, "\x1b[H\x1b[2J")
		}
		if _, err := show(); err != nil && ctx.Err() == nil {
			_, _ = fmt.Fprintln(w, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
