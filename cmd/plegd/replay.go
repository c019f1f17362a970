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
	return &cobra.Command{
		Use:   "replay FILE",
		Short: "Judge a recorded incident's facts again and show where the verdict differs",
		Long: `Reads an incident as plegd incidents ID -o json prints it, or a file of the
state directory (- for the standard input), and runs the facts of each moment
through this plegd's classifier.

Exit: 0 the same verdicts, 1 different ones or no incident.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			one, err := readIncident(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			different, judged := incident.Replay(one)
			w := cmd.OutOrStdout()
			for _, d := range different {
				_, _ = fmt.Fprintf(w, "moment %d, +%.3fs\n", d.Index+1, d.Offset)
				_, _ = fmt.Fprintf(w, "  was %s\n", verdictLine(d.Was))
				_, _ = fmt.Fprintf(w, "  is  %s\n", verdictLine(d.Is))
				for _, a := range d.Is.Active {
					for _, e := range a.Evidence {
						_, _ = fmt.Fprintf(w, "      %s: %s\n", a.ID, plain.Text(e))
					}
				}
			}
			switch {
			case judged == 0:
				return fmt.Errorf("%s: no moment of it holds facts", args[0])
			case len(different) > 0:
				_, _ = fmt.Fprintf(w, "%s: %d of %d verdicts differ\n", one.ID, len(different), judged)
				return exit(1)
			}
			_, _ = fmt.Fprintf(w, "%s: %d verdicts, all the same\n", one.ID, judged)
			return nil
		},
	}
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
