package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/internal/daemon"
	"github.com/plegd/plegd/internal/evidence/kubelet"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/plain"
	"github.com/plegd/plegd/internal/server"
	"github.com/plegd/plegd/internal/view"
)

func newCheckCommand() *cobra.Command {
	cfg := daemon.DefaultConfig()
	var client server.Client
	var output *string
	var timeout time.Duration
	problem := npdAny
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Make a full diagnosis",
		Long: `Asks the running daemon over its control socket. If none runs, or if
--runtime-endpoint names another socket, plegd watches the runtime itself for a
moment, at most --timeout.

` + verdictStatus + `
-o nagios: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN or wrong flag
-o npd, for node-problem-detector: 0 OK, 1 problem, 2 unknown or wrong flag`,
		Example: `  plegd check
  plegd check --control-socket= --timeout=5s -o json
  plegd check -o nagios`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Given = cmd.Flags().Changed
			if err := cmp.Or(cfg.Validate(), client.Validate(), validateCheck(timeout, problem, *output)); err != nil {
				return usage(err)
			}
			unknown := exitUnknown
			if *output == "npd" {
				unknown = npdUnknown
				timeout = min(timeout, npdTimeout)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			d, err := diagnose(ctx, client, cfg)
			if err != nil {
				return exit(unknown, err)
			}
			code, err := d.print(cmd.OutOrStdout(), *output, problem)
			if err != nil {
				code = unknown
			}
			return exit(code, err)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	output = outputFlag(cmd, "text", "json", "nagios", "npd")
	fs.DurationVar(&timeout, "timeout", 10*time.Second, "how long a diagnosis may take")
	socketFlag(cmd, &client.Socket, "ask no daemon")
	choiceFlag(cmd, "npd-problem", "", &problem, []string{npdAny, npdUnhealthy, npdCritical},
		"what -o npd calls a problem")
	urlFlags(cmd, &client)
	watchFlags(fs, &cfg)
	return cmd
}

// validateCheck checks the flags that only check has.
func validateCheck(timeout time.Duration, problem, output string) error {
	if timeout <= 0 {
		return fmt.Errorf("--timeout: %s: want a time above 0, such as 10s", timeout)
	}
	if problem != npdAny && output != "npd" {
		return fmt.Errorf("--npd-problem: %q: only -o npd has it", problem)
	}
	return nil
}

// verdictStatus documents the exit codes of check and status.
const verdictStatus = `Exit status:
  0  healthy
  1  degraded, or starting with a reason
  2  unhealthy
  3  unknown
  4  wrong flag or argument`

// diagnosis is a snapshot, or a public summary if that is all that the daemon tells.
type diagnosis struct {
	*facts.Snapshot
	public *view.Public
	local  bool // made here, as no daemon runs
}

func ask(ctx context.Context, client server.Client) (diagnosis, error) {
	s, public, err := client.Status(ctx)
	if public != nil {
		s = public.Snapshot()
	}
	return diagnosis{Snapshot: s, public: public}, err
}

// diagnose asks the daemon. It makes its own diagnosis if none runs, or if
// --runtime-endpoint names another socket than the daemon's.
func diagnose(ctx context.Context, client server.Client, cfg daemon.Config) (diagnosis, error) {
	if client.Socket != "" || client.URL != "" {
		d, err := ask(ctx, client)
		another := false
		if client.URL == "" && cfg.Given("runtime-endpoint") && err == nil {
			path, _ := kubelet.ParseEndpoint(cfg.RuntimeEndpoint) // it has been validated
			another = path != d.Facts.Endpoint.Path
		}
		if !another && !errors.Is(err, server.ErrNoDaemon) {
			return d, err
		}
	}
	s, err := daemon.Diagnose(ctx, cfg, build())
	s.PlegdVersion = build().Version
	return diagnosis{Snapshot: &s, local: true}, err
}

// exitCode is check's and status's. While plegd is starting a named reason is
// as good as degraded: something is wrong, and for how long is not known yet.
func exitCode(s *facts.Snapshot) int {
	switch {
	case s.State == facts.StateHealthy:
		return exitHealthy
	case s.State == facts.StateUnhealthy:
		return exitUnhealthy
	case s.State == facts.StateDegraded,
		s.State == facts.StateStarting && s.Reason != "" && s.Reason != health.Starting:
		return exitDegraded
	}
	return exitUnknown
}

// document is a diagnosis in words.
func (d diagnosis) document() *view.Document {
	if d.public != nil {
		return d.public.Document()
	}
	return view.Status(view.Content{Snapshot: d.Snapshot})
}

// brief writes what fits a screen and returns the exit code.
func (d diagnosis) brief(w io.Writer) (int, error) {
	return exitCode(d.Snapshot), d.document().WriteBrief(w, isTerminal(w), screenHeight(w), "plegd status --full")
}

// print writes a diagnosis in a format and returns the exit code.
func (d diagnosis) print(w io.Writer, format, problem string) (int, error) {
	code := exitCode(d.Snapshot)
	switch {
	case format == "nagios":
		return printNagios(w, d.Snapshot)
	case format == "npd":
		return d.printNPD(w, problem)
	case format == "json" && d.public != nil:
		return code, view.WriteJSON(w, d.public)
	case format == "json":
		return code, view.WriteJSON(w, d.Snapshot)
	}
	return code, d.document().WriteText(w, isTerminal(w))
}

// node-problem-detector's protocol for a custom plugin, and what -o npd calls a problem.
const (
	npdOK       = 0
	npdProblem  = 1
	npdUnknown  = 2
	npdMaxBytes = 80                      // of the message
	npdTimeout  = 3500 * time.Millisecond // inside its usual timeout of 5 s

	npdAny       = "any"       // everything that is not healthy
	npdUnhealthy = "unhealthy" // the kubelet no longer manages pods
	npdCritical  = "critical"  // a critical reason of the runtime or the node
)

// printNagios prints one line with performance data, as the Nagios plugin
// guidelines want. A critical reason is CRITICAL while the kubelet still manages
// pods, too.
func printNagios(w io.Writer, s *facts.Snapshot) (int, error) {
	code := exitCode(s)
	if slices.ContainsFunc(s.Active, func(r facts.Active) bool { return r.Severity == facts.SeverityCritical }) {
		code = exitUnhealthy
	}
	line := "PLEGD " + [...]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}[code] + " - " + oneLine(s, true)
	if !s.LastSeen.IsZero() {
		threshold := s.Threshold.Seconds()
		line += fmt.Sprintf(" | last_seen_age=%.3fs;%g;%g;0", s.LastSeenAge.Seconds(), threshold/6, threshold)
	}
	_, err := fmt.Fprintln(w, line)
	return code, err
}

// printNPD prints at most 80 bytes, as node-problem-detector keeps of them. Half a
// number must not pass for a whole one: a line that is cut ends with three dots.
func (d diagnosis) printNPD(w io.Writer, problem string) (int, error) {
	line := oneLine(d.Snapshot, false)
	code := npdCode(d.Snapshot, problem)
	if d.local && d.Reason == health.RuntimeSocketMissing && !socketVisible(d.Snapshot) {
		line = "unknown: no plegd answers here, and no socket of a runtime is visible"
		code = npdUnknown
	}
	_, err := fmt.Fprintln(w, plain.CutTo(line, npdMaxBytes))
	return code, err
}

// socketVisible reports whether a socket that exists would be seen: its directory is there. In a
// pod it may not be, and while the daemon restarts that is no fault of the node.
func socketVisible(s *facts.Snapshot) bool {
	path := s.Facts.Endpoint.Path
	if path == "" {
		return false
	}
	_, err := os.Stat(filepath.Dir(path))
	return err == nil
}

// npdCode is the exit code of a diagnosis for a kind of problem.
func npdCode(s *facts.Snapshot, problem string) int {
	code := exitCode(s)
	var found bool
	switch problem {
	case npdUnhealthy:
		found = code == exitUnhealthy
	case npdCritical:
		found = slices.ContainsFunc(s.Active, ofRuntime)
	default:
		found = code == exitUnhealthy || code == exitDegraded
	}
	switch {
	case found:
		return npdProblem
	case code == exitUnknown:
		return npdUnknown
	}
	return npdOK
}

// ofRuntime reports whether a reason is critical and of the runtime or the node:
// replacing the runtime for a fault of the kubelet or of plegd would be wrong.
func ofRuntime(a facts.Active) bool {
	r, _ := health.Lookup(a.ID)
	return a.Severity == facts.SeverityCritical && r.Layer != health.LayerKubelet && r.Layer != health.LayerPlegd
}

// notReadyText is the time until NotReady, "" where none is predicted.
func notReadyText(s *facts.Snapshot) string {
	earliest := s.NotReadyIn
	latest := s.NotReadyInLatest
	switch {
	case earliest == nil:
		return ""
	case !s.NodeReady && *earliest <= 0:
		return ", NotReady"
	case latest != nil && *latest > *earliest:
		return fmt.Sprintf(", NotReady in %.0f-%.0fs", earliest.Seconds(), latest.Seconds())
	}
	return fmt.Sprintf(", NotReady in %.0fs", earliest.Seconds())
}

// oneLine is the verdict, the primary reason and the time left; then, each after a
// colon, the culprit, with its name or without, and the first piece of evidence.
func oneLine(s *facts.Snapshot, names bool) string {
	out := string(s.State)
	if s.Reason != "" {
		out += ": " + s.Reason
	}
	out += notReadyText(s)
	if s.Culprit != nil {
		out += ": " + view.Culprit(s.Culprit, names)
	}
	if len(s.Active) > 0 {
		if evidence := view.BesideChain(&s.WaitChain, s.Active[0].Evidence); len(evidence) > 0 {
			out += ": " + evidence[0]
		}
	}
	return strings.ReplaceAll(plain.Text(out), "|", " ") // | begins Nagios's performance data
}
