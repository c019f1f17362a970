package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/plain"
)

func newReplayCommand() *cobra.Command {
	var output *string
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Judge a recorded incident's facts again and show where the verdict differs",
		Long: `Reads an incident as plegd incidents ID -o json prints it, or a file of the
state directory (- for the standard input), and runs the facts of each moment
through this plegd's classifier.`,
		Example: `  plegd replay incident.json
  plegd incidents 20261121T030245Z-3f9a1c -o json | plegd replay -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			one, err := readIncident(args[0], cmd.InOrStdin())
			if err != nil {
				return &exitError{exitUnknown, err}
			}
			different, judged := incident.Replay(one)
			if judged == 0 {
				return &exitError{exitUnknown, fmt.Errorf("%s: no moment of it holds facts", args[0])}
			}
			if *output == "json" {
				err = indented(cmd.OutOrStdout(), replayDocument{ID: one.ID, Judged: judged, Different: different})
			} else {
				err = writeReplay(cmd.OutOrStdout(), one.ID, different, judged)
			}
			if err == nil && len(different) > 0 {
				return exit(1)
			}
			return err
		},
	}
	output = outputFlag(cmd, "text", "json")
	return cmd
}

// replayDocument is what replay -o json prints.
type replayDocument struct {
	ID        string                `json:"id"`
	Judged    int                   `json:"judged"`
	Different []incident.Difference `json:"different"`
}

// writeReplay prints each moment whose verdict differs now, and a summary.
func writeReplay(w io.Writer, id string, different []incident.Difference, judged int) error {
	var b strings.Builder
	for _, d := range different {
		fmt.Fprintf(&b, "moment %d, +%.3fs\n", d.Index+1, d.Offset)
		fmt.Fprintf(&b, "  was %s\n", verdictLine(d.Was))
		fmt.Fprintf(&b, "  is  %s\n", verdictLine(d.Is))
		for _, a := range d.Is.Active {
			for _, e := range a.Evidence {
				fmt.Fprintf(&b, "      %s: %s\n", a.ID, plain.Text(e))
			}
		}
	}
	if len(different) > 0 {
		fmt.Fprintf(&b, "%s: %d of %d verdicts differ\n", id, len(different), judged)
	} else {
		fmt.Fprintf(&b, "%s: %d verdicts, all the same\n", id, judged)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func readIncident(path string, stdin io.Reader) (*incident.Incident, error) {
	r := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // it was only read
		r = f
	}
	one, err := incident.Decode(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return one, nil
}

// verdictLine is a verdict in one line.
func verdictLine(v *health.Verdict) string {
	line := string(v.State)
	if v.Reason != "" {
		line += ": " + v.Reason
	}
	var also []string
	for _, a := range v.Active {
		if a.ID != v.Reason {
			also = append(also, a.ID)
		}
	}
	if len(also) > 0 {
		line += ", also " + strings.Join(also, ", ")
	}
	return plain.Text(line)
}
