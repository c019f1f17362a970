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
	var signals bool
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Judge a recorded incident's facts again and show where the verdict differs",
		Long: `Reads an incident as plegd incidents ID -o json prints it, or a file of the
state directory (- for the standard input), and runs the facts of each moment
through this plegd's classifier.`,
		Example: `  plegd replay incident.json
  plegd replay --signals incident.json
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
			var spans []incident.SignalSpan
			if signals {
				spans = incident.Signals(one)
			}
			if *output == "json" {
				err = indented(cmd.OutOrStdout(), replayDocument{ID: one.ID, Judged: judged, Different: different, Signals: spans})
			} else {
				err = writeReplay(cmd.OutOrStdout(), one.ID, different, judged, spans)
			}
			if err == nil && len(different) > 0 {
				return exit(1)
			}
			return err
		},
	}
	output = outputFlag(cmd, "text", "json")
	cmd.Flags().BoolVar(&signals, "signals", false, "print from when to when each signal held, the conditions that the reasons are made from")
	return cmd
}

// replayDocument is what replay -o json prints.
type replayDocument struct {
	ID        string                `json:"id"`
	Judged    int                   `json:"judged"`
	Different []incident.Difference `json:"different"`
	Signals   []incident.SignalSpan `json:"signals,omitempty"`
}

// writeReplay prints the timeline of the signals, each moment whose verdict is
// another now, and a summary.
func writeReplay(w io.Writer, id string, different []incident.Difference, judged int, spans []incident.SignalSpan) error {
	var b strings.Builder
	for _, s := range spans {
		end := "end"
		if s.To != nil {
			end = fmt.Sprintf("%+.3fs", *s.To)
		}
		fmt.Fprintf(&b, "%-30s %+12.3fs to %s\n", s.Name, s.From, end)
	}
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
	if v.RunnerUp != "" {
		line += ", runner-up " + v.RunnerUp
	}
	return plain.Text(line)
}
