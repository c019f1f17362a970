package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/internal/drill"
)

const (
	minDrill = time.Second
	maxDrill = 24 * time.Hour
)

func newDrillCommand() *cobra.Command {
	var alertmanager, node, name string
	var labels []string
	length := 5 * time.Minute
	cmd := &cobra.Command{
		Use:   "drill REASON",
		Short: "Send the alert of a reason to an Alertmanager, marked as a drill",
		Long: `Posts the alert that plegd's rules would send for this node and REASON at its
worst: their labels and texts, drill="true", and a summary that begins with
DRILL. The Alertmanager ends it after --for. Neither the runtime nor the daemon
is asked or touched.

Exit status: 0 accepted, 1 not accepted, 4 wrong flag or argument`,
		Example: `  plegd drill RuntimeFrozen --alertmanager=http://alertmanager:9093
  plegd drill ShimStuck --alertmanager=http://alertmanager:9093 --for=1m --label=cluster=eu-1`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			reason, err := findReason(args[0])
			extra, labelErr := parseLabels(labels)
			if err := cmp.Or(err, drill.ValidateURL(alertmanager), labelErr); err != nil {
				return usage(err)
			}
			if length < minDrill || length > maxDrill {
				return usage(fmt.Errorf("--for: %s: want %s to %s", length, minDrill, maxDrill))
			}
			if node == "" {
				node, err = os.Hostname()
			}
			if err != nil {
				return err
			}
			return postDrill(cmd, alertmanager, drill.Options{
				Reason: reason, Node: node, Name: name, Labels: extra, Start: time.Now(), For: length,
			})
		},
		ValidArgsFunction: cobra.FixedCompletions(reasonIDs(), cobra.ShellCompDirectiveNoFileComp),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&alertmanager, "alertmanager", "", "URL of the Alertmanager, as in http://HOST:9093")
	fs.DurationVar(&length, "for", length, "time after which the alert ends")
	fs.StringVar(&node, "node", "", "name of the node; empty: the host's name")
	fs.StringVar(&name, "alert", "", "name of the alert, as in PLEGUnhealthy; empty: that of the reason at its worst")
	fs.StringArrayVar(&labels, "label", nil, "a further label, NAME=VALUE, repeatable")
	return cmd
}

// postDrill posts the alert and prints its summary and end.
func postDrill(cmd *cobra.Command, alertmanager string, o drill.Options) error {
	alert, err := drill.NewAlert(o)
	if err != nil {
		return usage(err)
	}
	err = drill.Post(cmd.Context(), alertmanager, alert)
	if err != nil {
		return fmt.Errorf("post the drill: %w", err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\nIt ends at %s.\n", alert.Annotations["summary"], alert.EndsAt.Format("15:04:05 MST"))
	return err
}

// parseLabels reads NAME=VALUE.
func parseLabels(list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, label := range list {
		name, value, ok := strings.Cut(label, "=")
		if !ok || name == "" || value == "" {
			return nil, fmt.Errorf("--label: %q: want NAME=VALUE, such as cluster=eu-1", label)
		}
		out[name] = value
	}
	return out, nil
}
