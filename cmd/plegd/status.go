package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/plegd/plegd/internal/server"
)

func newStatusCommand() *cobra.Command {
	var client server.Client
	var output *string
	var repeat bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the running daemon knows",
		Long: `Asks the running daemon over its control socket, or with --url over HTTP.

` + verdictStatus,
		Example: `  plegd status
  plegd status --url=https://NODE:20290 --cacert=ca.pem --user=NAME:PASSWORD
  plegd status --watch
  plegd status -o json | jq .reasons`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := client.Validate(); err != nil {
				return usage(err)
			}
			w := cmd.OutOrStdout()
			show := func() (int, error) {
				d, err := ask(cmd.Context(), client)
				if err != nil {
					return exitUnknown, err
				}
				return d.print(w, *output, "")
			}
			if !repeat {
				return exit(show())
			}
			head := watchHead(w)
			if *output == "json" { // a stream of documents
				head = func() string { return "" }
			}
			return watch(cmd.Context(), w, head, func() error { _, err := show(); return err })
		},
	}
	output = outputFlag(cmd, "text", "json")
	cmd.Flags().BoolVarP(&repeat, "watch", "w", false, "print it again every second until interrupted")
	socketFlag(cmd, &client.Socket, "only with --url")
	urlFlags(cmd, &client)
	return cmd
}

// watch prints the status every second until ctx is done. An error is printed in
// its place, and the next attempt follows.
func watch(ctx context.Context, out io.Writer, head func() string, show func() error) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		_, _ = io.WriteString(out, head())
		if err := show(); err != nil && ctx.Err() == nil {
			_, _ = fmt.Fprintln(out, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// watchHead returns what separates two prints: a cleared screen on a terminal,
// the time elsewhere.
func watchHead(out io.Writer) func() string {
	if onTerminal(out) {
		return func() string { return "\x1b[H\x1b[J" } // cursor home, clear below it
	}
	return func() string { return "--- " + time.Now().UTC().Format(time.RFC3339) + "\n" }
}

func onTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// isTerminal reports whether w is a terminal that shows colors (no-color.org).
func isTerminal(w io.Writer) bool { return onTerminal(w) && os.Getenv("NO_COLOR") == "" }
