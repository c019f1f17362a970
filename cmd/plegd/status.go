package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/server"
	"github.com/plegd/plegd/internal/view"
)

func newStatusCommand() *cobra.Command {
	var client server.Client
	var output *string
	var repeat, full bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the running daemon knows",
		Long: `Asks the running daemon over its control socket, or with --url over HTTP. It prints
what fits a screen of 24 lines; --full adds all steps, the state of each part, the
calls and the pods.

` + verdictStatus,
		Example: `  plegd status
  plegd status --url=https://NODE:20290 --cacert=ca.pem --user=NAME:PASSWORD
  plegd status -o json | jq .reasons`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := client.Validate(); err != nil {
				return usage(err)
			}
			show := func() (int, error) {
				d, err := ask(cmd.Context(), client)
				if err != nil {
					return exitUnknown, err
				}
				if *output == "text" && !full {
					return d.brief(cmd.OutOrStdout())
				}
				return d.print(cmd.OutOrStdout(), *output, "")
			}
			if repeat {
				return watch(cmd.Context(), cmd.OutOrStdout(), *output == "json", show)
			}
			return exit(show())
		},
	}
	output = outputFlag(cmd, "text", "json")
	cmd.Flags().BoolVar(&full, "full", false, "print everything, also what does not fit the screen")
	cmd.Flags().BoolVarP(&repeat, "watch", "w", false, "print it again every second until interrupted")
	socketFlag(cmd, &client.Socket, "only with --url")
	urlFlags(cmd, &client)
	return cmd
}

// watch prints the status every second until ctx is done. An error is printed in
// its place, and the next attempt follows.
func watch(ctx context.Context, out io.Writer, stream bool, show func() (int, error)) error {
	for {
		switch {
		case stream: // of documents
		case onTerminal(out):
			_, _ = io.WriteString(out, "\x1b[H\x1b[J") // cursor home, clear below it
		default:
			_, _ = fmt.Fprintf(out, "--- %s\n", time.Now().UTC().Format(time.RFC3339))
		}
		if _, err := show(); err != nil && ctx.Err() == nil {
			_, _ = fmt.Fprintln(out, err)
		}
		if !bounded.Sleep(ctx, time.Second) {
			return nil
		}
	}
}

// screenHeight is the height of a terminal without the line of the next prompt.
func screenHeight(w io.Writer) int {
	f, ok := w.(*os.File)
	if ok {
		_, height, err := term.GetSize(int(f.Fd()))
		if err == nil && height > 0 {
			return height - 1
		}
	}
	return view.Screen - 1
}

func onTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// isTerminal reports whether w is a terminal that shows colors (no-color.org).
func isTerminal(w io.Writer) bool { return onTerminal(w) && os.Getenv("NO_COLOR") == "" }
