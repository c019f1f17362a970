package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/server"
	"github.com/plegd/plegd/internal/view"
)

func newIncidentsCommand() *cobra.Command {
	var source incidentSource
	var output *string
	cmd := &cobra.Command{
		Use:   "incidents [ID]",
		Short: "List recorded incidents, newest first, or print one",
		Long: `Asks the running daemon over its control socket. If none runs, or it does not
answer, its state directory is read. plegd replay reads what ID -o json prints,
which holds names of pods.

Exit status: 0 listed, 3 unknown ID or nothing to read, 4 wrong flag or argument`,
		Example: `  plegd incidents
  plegd incidents 20261121T030245Z-3f9a1c
  plegd incidents 20261121T030245Z-3f9a1c -o json > incident.json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := cmd.OutOrStdout()
			if len(args) == 0 {
				list, err := source.list(cmd.Context(), cmd.ErrOrStderr())
				switch {
				case err != nil:
					return exit(exitUnknown, err)
				case *output == "json":
					return view.WriteJSON(w, list)
				}
				return view.WriteIncidents(w, list)
			}
			one, err := source.one(cmd.Context(), args[0], cmd.ErrOrStderr())
			switch {
			case err != nil:
				return exit(exitUnknown, err)
			case *output == "json":
				return view.WriteJSON(w, one)
			}
			return view.Incident(one, new(facts.Snapshot)).WriteText(w, isTerminal(w))
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (
			ids []cobra.Completion, _ cobra.ShellCompDirective) {
			if len(args) == 0 {
				list, _ := source.list(cmd.Context(), io.Discard) // on an error there is nothing to complete
				for _, one := range list {
					ids = append(ids, cobra.CompletionWithDesc(one.ID, one.Reason))
				}
			}
			return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		},
	}
	output = outputFlag(cmd, "text", "json")
	source.flags(cmd, "read the state directory")
	return cmd
}

// incidentSource is the source of incidents: the daemon, or the files that it left.
type incidentSource struct {
	server.Client
	stateDir string
}

func (f *incidentSource) flags(cmd *cobra.Command, empty string) {
	socketFlag(cmd, &f.Socket, empty)
	stateDirFlag(cmd, &f.stateDir, "the daemon's state directory, read if no daemon runs")
}

func (f *incidentSource) list(ctx context.Context, stderr io.Writer) ([]incident.Summary, error) {
	list, err := f.Incidents(ctx)
	if err == nil || !f.readDisk(err, stderr) {
		return list, err
	}
	list, bad, readErr := incident.Read(incident.Dir(f.stateDir))
	if readErr != nil {
		return nil, fmt.Errorf("%w; and --state-dir %q: %w", err, f.stateDir, readErr)
	}
	if len(bad) > 0 {
		_, _ = fmt.Fprintf(stderr, "plegd: %d files in %s are no incidents that this plegd can read\n",
			len(bad), incident.Dir(f.stateDir))
	}
	return list, nil
}

func (f *incidentSource) one(ctx context.Context, id string, stderr io.Writer) (*incident.Incident, error) {
	one, err := f.Incident(ctx, id)
	if err != nil && f.readDisk(err, stderr) {
		one, err = incident.ReadOne(incident.Dir(f.stateDir), id)
	}
	if errors.Is(err, incident.ErrUnknown) {
		return nil, fmt.Errorf("%.40q: unknown incident: `plegd incidents` lists them", id)
	}
	return one, err
}

// readDisk reports whether the daemon's error means that the state directory is to
// be read instead. A daemon that is stopped or stuck may hold newer moments of an
// open incident than it has stored, which is reported; it is not asked again.
func (f *incidentSource) readDisk(err error, stderr io.Writer) bool {
	if errors.Is(err, server.ErrNoAnswer) {
		_, _ = fmt.Fprintf(stderr, "plegd: %v; these are its stored incidents\n", err)
		f.Socket = ""
		return true
	}
	return errors.Is(err, server.ErrNoDaemon)
}
