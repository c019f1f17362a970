package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/internal/daemon"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/plain"
	"github.com/plegd/plegd/internal/server"
	"github.com/plegd/plegd/internal/view/text"
)

func newIncidentsCommand() *cobra.Command {
	from := incidentsFrom{socket: daemon.DefaultConfig().ControlSocket, stateDir: defaultStateDir()}
	var output *string
	cmd := &cobra.Command{
		Use:   "incidents [ID]",
		Short: "List recorded incidents, newest first, or print one",
		Long: `Asks the running daemon over its control socket. Where none runs, or it does not
answer, what it has stored in its state directory is read.

plegd incidents ID -o json is what to attach to a ticket; plegd replay reads it.
It holds names of pods.`,
		Example: `  plegd incidents
  plegd incidents 20261121T030245Z-3f9a1c
  plegd incidents 20261121T030245Z-3f9a1c -o json > incident.json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			fail := func(err error) error { return &exitError{exitUnknown, err} }
			if err := fromEnvironment(cmd.Flags(), os.LookupEnv); err != nil {
				return usage(err)
			}
			w := cmd.OutOrStdout()
			if len(args) == 1 {
				one, err := from.one(cmd.Context(), args[0], cmd.ErrOrStderr())
				if err != nil {
					return fail(err)
				}
				if *output == "json" {
					return indented(w, one)
				}
				return text.WriteIncidentText(w, one, isTerminal(w))
			}
			list, err := from.list(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return fail(err)
			}
			if *output == "json" {
				return indented(w, list)
			}
			return text.WriteIncidentsText(w, list, isTerminal(w))
		},
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) (ids []cobra.Completion, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
		defer cancel()
		list, err := from.list(ctx, io.Discard)
		if err != nil || len(args) > 0 {
			list = nil
		}
		for _, one := range list {
			ids = append(ids, cobra.CompletionWithDesc(one.ID, one.Reason))
		}
		return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
	flags := cmd.Flags()
	output = outputFlag(cmd, "text", "json")
	flags.StringVar(&from.socket, "control-socket", from.socket, "the daemon's control socket; empty: read the state directory")
	flags.StringVar(&from.stateDir, "state-dir", from.stateDir, "the daemon's state directory, read where no daemon runs")
	return cmd
}

// incidentsFrom is where incidents come from: the daemon, or what it left.
type incidentsFrom struct{ socket, stateDir string }

func (f *incidentsFrom) list(ctx context.Context, stderr io.Writer) ([]incident.Summary, error) {
	list, err := server.FetchIncidents(ctx, f.socket)
	if err == nil || !f.readDisk(err, stderr) {
		return list, err
	}
	list, bad, readErr := incident.Read(incident.Dir(f.stateDir))
	if readErr != nil {
		return nil, f.nothing(err, readErr)
	}
	if len(bad) > 0 {
		_, _ = fmt.Fprintf(stderr, "plegd: %d files in %s are no incidents that this plegd can read\n", len(bad), incident.Dir(f.stateDir))
	}
	return list, nil
}

func (f *incidentsFrom) one(ctx context.Context, id string, stderr io.Writer) (*incident.Incident, error) {
	one, err := server.FetchIncident(ctx, f.socket, id)
	switch {
	case err == nil:
		return one, nil
	case errors.Is(err, incident.ErrUnknown):
		return nil, fmt.Errorf("%.40q: unknown incident: `plegd incidents` lists them", id)
	case !f.readDisk(err, stderr):
		return nil, err
	}
	if one, readErr := incident.ReadOne(incident.Dir(f.stateDir), id); !errors.Is(readErr, incident.ErrUnknown) {
		return one, readErr
	}
	if _, _, readErr := incident.Read(incident.Dir(f.stateDir)); readErr != nil {
		return nil, f.nothing(err, readErr)
	}
	return nil, fmt.Errorf("%.40q: unknown incident in %s: `plegd incidents` lists them", id, incident.Dir(f.stateDir))
}

// readDisk reports whether the daemon's error means that the state directory is to
// be read instead. A daemon that is stopped or stuck may hold newer moments of an
// open incident than it has stored, which is said; it is not asked again.
func (f *incidentsFrom) readDisk(err error, stderr io.Writer) bool {
	if errors.Is(err, server.ErrNoAnswer) {
		_, _ = fmt.Fprintf(stderr, "plegd: %v; this is what it has stored\n", err)
		f.socket = ""
		return true
	}
	return errors.Is(err, server.ErrNoDaemon)
}

// nothing reports that there is neither a daemon nor a directory.
func (f *incidentsFrom) nothing(noDaemon, noDir error) error {
	if errors.Is(noDir, fs.ErrNotExist) {
		return fmt.Errorf("%w; and there is no %s: give the daemon's --state-dir", noDaemon, incident.Dir(f.stateDir))
	}
	return fmt.Errorf("%w; and the state directory: %w", noDaemon, noDir)
}

func indented(w io.Writer, v any) error {
	b, err := health.Marshal(v)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, plain.JSON(b), "", "  "); err != nil {
		return err
	}
	out.WriteByte('\n')
	_, err = w.Write(out.Bytes())
	return err
}

// defaultStateDir is where the daemon keeps what survives it.
func defaultStateDir() string {
	if dir := systemdStateDir(); dir != "" {
		return dir
	}
	return daemon.DefaultConfig().StateDir
}
