package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/internal/daemon"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/server"
)

func newStatusCommand() *cobra.Command {
	socket := daemon.DefaultConfig().ControlSocket
	var output *string
	var again bool
	var remote *server.Remote
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the running daemon knows",
		Long:  `Asks the running daemon over its control socket, or with --url over HTTP.`,
		Example: `  plegd status
  plegd status --url=https://NODE:20290 --cacert=ca.pem --user=NAME:PASSWORD
  plegd status --watch
  plegd status -o json | jq .reasons`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fail := func(err error) error { return &exitError{exitUnknown, err} }
			if err := fromEnvironment(cmd.Flags(), os.LookupEnv); err != nil {
				return usage(err)
			}
			if err := validRemote(remote); err != nil {
				return usage(err)
			}
			print := map[string]func(io.Writer, *health.Snapshot) (int, error){"text": printText, "json": printJSON}[*output]
			show := func() (int, error) {
				if remote.URL != "" {
					return showRemote(cmd.Context(), cmd.OutOrStdout(), remote, *output, print)
				}
				doc, err := server.FetchStatus(cmd.Context(), socket)
				if err != nil {
					return exitUnknown, err
				}
				return print(cmd.OutOrStdout(), doc)
			}
			if again {
				head := watchHead(cmd.OutOrStdout())
				if *output == "json" { // a stream of documents
					head = func() string { return "" }
				}
				return watch(cmd.Context(), cmd.OutOrStdout(), head, func() error { _, err := show(); return err })
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
	fs.BoolVarP(&again, "watch", "w", false, "print it again every second until interrupted")
	fs.StringVar(&socket, "control-socket", socket, "the daemon's control socket")
	remote = remoteFlags(fs)
	return cmd
}
