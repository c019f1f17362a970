package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/plain"
	"github.com/plegd/plegd/internal/view"
)

func newReplayCommand() *cobra.Command {
	var output *string
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Judge a recorded incident's facts again and show where the verdict differs",
		Long: `Reads an incident as plegd incidents ID -o json prints it, or a file of the
state directory (- for the standard input), and runs the facts of each moment
through this plegd's classifier.

Exit status: 0 same verdicts, 1 different ones, 3 FILE is not an incident,
4 wrong flag or argument`,
		Example: `  plegd replay incident.json
  plegd incidents 20261121T030245Z-3f9a1c -o json | plegd replay -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := args[0]
			if path == "-" {
				path = "/dev/stdin"
			}
			one, err := incident.ReadFile(path)
			if err != nil {
				return exit(exitUnknown, err)
			}
			different, judged := incident.Replay(one)
			if judged == 0 {
				return exit(exitUnknown, fmt.Errorf("%s: no moment of it holds facts", args[0]))
			}
			w := cmd.OutOrStdout()
			if *output == "json" {
				err = view.WriteJSON(w, map[string]any{"id": one.ID, "judged": judged, "different": different})
			} else {
				err = writeReplay(w, one.ID, different, judged)
			}
			if err == nil && len(different) > 0 {
				return exit(1, nil)
			}
			return err
		},
	}
	output = outputFlag(cmd, "text", "json")
	return cmd
}

// writeReplay prints each moment whose verdict differs now, and a summary.
func writeReplay(w io.Writer, id string, different []incident.Difference, judged int) error {
	var b strings.Builder
	for _, d := range different {
		fmt.Fprintf(&b, "moment %d, +%.3fs\n  was %s\n  is  %s\n", d.Index+1, d.Offset, verdictLine(d.Recorded), verdictLine(d.Judged))
	}
	_, err := fmt.Fprintf(w, "%s%s: %d of %d verdicts differ\n", b.String(), id, len(different), judged)
	return err
}

// verdictLine is a verdict with its active reasons in one line.
func verdictLine(v *facts.Verdict) string {
	line := string(v.State)
	for i, a := range v.Active {
		line += [...]string{": ", ", "}[min(i, 1)] + a.ID
	}
	return plain.Text(line)
}
