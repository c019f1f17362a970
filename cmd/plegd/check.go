package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/internal/daemon"
	"github.com/plegd/plegd/internal/evidence/kubelet"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/server"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/internal/view/text"
)

func newCheckCommand() *cobra.Command {
	cfg := daemon.DefaultConfig()
	var output *string
	var timeout time.Duration
	var problem string
	var remote *server.Remote
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Make a full diagnosis",
		Long: `Asks the running daemon over its control socket. If none runs, or if
--runtime-endpoint names another socket, plegd watches the runtime itself for a
moment: as short as the case allows, at most --timeout.

Two formats have the exit codes of the programs that they are for. -o nagios:
0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN or wrong flag. -o npd, for
node-problem-detector: 0 OK, 1 problem, 2 unknown or wrong flag.`,
		Example: `  plegd check
  plegd check --control-socket= --timeout=5s -o json
  plegd check -o nagios`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			print := map[string]func(io.Writer, *health.Snapshot) (int, error){
				"text": printText, "json": printJSON, "nagios": printNagios,
				"npd": func(w io.Writer, d *health.Snapshot) (int, error) { return printNPD(w, d, problem) },
			}[*output]
			if err := fromEnvironment(cmd.Flags(), os.LookupEnv); err != nil {
				return usage(err)
			}
			cfg.Given = cmd.Flags().Changed
			if err := cfg.Validate(); err != nil {
				return usage(err)
			}
			if timeout <= 0 {
				return usage(fmt.Errorf("--timeout: %s: want a time above 0, such as 10s", timeout))
			}
			if err := validNPDProblem(problem, *output); err != nil {
				return usage(err)
			}
			if err := validRemote(remote); err != nil {
				return usage(err)
			}
			if isReason(problem) && remote.URL == "" {
				return checkReason(cmd.Context(), cmd.OutOrStdout(), cfg.ControlSocket, problem, timeout)
			}
			unknown := exitUnknown
			if *output == "npd" {
				unknown, timeout = npdUnknown, min(timeout, npdTimeout)
			}
			fail := func(err error) error { return &exitError{unknown, err} }
			if remote.URL != "" {
				ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
				defer cancel()
				code, err := showRemote(ctx, cmd.OutOrStdout(), remote, *output, print)
				if err != nil {
					return fail(err)
				}
				return exit(code)
			}
			doc, err := diagnose(cmd.Context(), cfg, timeout)
			if err != nil {
				return fail(err)
			}
			code, err := print(cmd.OutOrStdout(), doc)
			if err != nil {
				return fail(err)
			}
			return exit(code)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	output = outputFlag(cmd, "text", "json", "nagios", "npd")
	fs.DurationVar(&timeout, "timeout", 10*time.Second, "how long a diagnosis may take")
	fs.StringVar(&cfg.ControlSocket, "control-socket", cfg.ControlSocket, "the daemon's control socket; empty: ask no daemon")
	fs.StringVar(&problem, "npd-problem", npdAny, "what -o npd calls a problem: any, unhealthy, critical, or the ID of a reason")
	completeFlag(cmd, "npd-problem", npdProblems())
	remote = remoteFlags(fs)
	watchFlags(fs, &cfg)
	return cmd
}

// diagnose asks the daemon. It makes its own diagnosis if none runs, or if
// --runtime-endpoint names another socket than the daemon's.
func diagnose(ctx context.Context, cfg daemon.Config, timeout time.Duration) (*health.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if cfg.ControlSocket != "" {
		doc, err := server.FetchStatus(ctx, cfg.ControlSocket)
		another := cfg.Given != nil && cfg.Given("runtime-endpoint") && err == nil && !sameSocket(doc, cfg.RuntimeEndpoint)
		if !another && !errors.Is(err, server.ErrNoDaemon) {
			return doc, err
		}
	}
	s, err := daemon.Diagnose(ctx, cfg, build())
	if err != nil {
		return nil, err
	}
	s.PlegdVersion = build().Version
	return &s, nil
}

// sameSocket reports whether a diagnosis is of the runtime at this endpoint.
func sameSocket(doc *health.Snapshot, endpoint string) bool {
	path, err := kubelet.ParseEndpoint(endpoint)
	return err == nil && path == doc.Facts.Endpoint.Path
}

func exit(code int) error {
	if code == 0 {
		return nil
	}
	return &exitError{code: code}
}

// exitCode is check's and status's. While plegd is starting a named reason is
// as good as degraded: something is wrong, and for how long nobody knows yet.
func exitCode(d *health.Snapshot) int {
	switch d.State {
	case health.StateHealthy:
		return exitHealthy
	case health.StateDegraded:
		return exitDegraded
	case health.StateUnhealthy:
		return exitUnhealthy
	case health.StateUnknown:
		return exitUnknown
	}
	if d.Reason != "" && d.Reason != health.Starting {
		return exitDegraded
	}
	return exitUnknown
}

func printText(w io.Writer, d *health.Snapshot) (int, error) {
	return exitCode(d), text.WriteStatusText(w, d, isTerminal(w))
}

func printJSON(w io.Writer, d *health.Snapshot) (int, error) {
	return exitCode(d), indented(w, d)
}

// printNagios prints one line with performance data, as the Nagios plugin
// guidelines want. A critical reason is CRITICAL while the kubelet still manages
// pods, too.
func printNagios(w io.Writer, d *health.Snapshot) (int, error) {
	code := exitCode(d)
	if slices.ContainsFunc(d.Active, func(r health.Active) bool { return r.Severity == health.SeverityCritical }) {
		code = exitUnhealthy
	}
	line := "PLEGD " + [...]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}[code] + " - " + oneLine(d) + details(d, noLimit)
	if !d.LastSeen.IsZero() {
		threshold := d.Threshold.Seconds()
		line += fmt.Sprintf(" | last_seen_age=%.3fs;%g;%g;0", d.LastSeenAge.Seconds(), threshold/6, threshold)
	}
	_, err := fmt.Fprintln(w, line)
	return code, err
}

// noLimit is more bytes than any line has.
const noLimit = 1 << 20

// oneLine is the verdict, the primary reason and the time left.
func oneLine(d *health.Snapshot) string {
	var b strings.Builder
	b.WriteString(string(d.State))
	if d.Reason != "" {
		b.WriteString(": " + d.Reason)
	}
	switch in, latest := d.NotReadyIn, d.NotReadyInLatest; {
	case in == nil:
	case !d.NodeReady && *in <= 0:
		b.WriteString(", NotReady")
	case latest != nil && *latest > *in:
		fmt.Fprintf(&b, ", NotReady in %.0f-%.0fs", in.Seconds(), latest.Seconds())
	default:
		fmt.Fprintf(&b, ", NotReady in %.0fs", in.Seconds())
	}
	return printable(b.String())
}

// details are the culprit and the first piece of evidence, each after a colon, where
// the one fits into a line of at most room bytes; its name is left out first.
func details(d *health.Snapshot, room int) string {
	out := ""
	if d.Culprit != nil {
		for _, names := range []bool{true, false} {
			if c := ": " + view.Culprit(d.Culprit, names); len(c) <= room {
				out = c
				break
			}
		}
	}
	if len(d.Active) > 0 {
		if evidence := view.BesideChain(d, d.Active[0].Evidence); len(evidence) > 0 {
			out += ": " + evidence[0]
		}
	}
	return printable(out)
}

// printable makes one line of plain text, whatever a runtime has put into its
// messages; | would begin Nagios's performance data.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == '|' || r == utf8.RuneError {
			return ' '
		}
		return r
	}, text)
}
