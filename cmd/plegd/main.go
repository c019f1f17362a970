// Command plegd says why a Kubernetes node's container runtime makes the
// kubelet report "PLEG is not healthy", and says it early.
//
// This package holds the commands and wires the rooms together; it holds no
// logic of its own.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/common/version"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/grpclog"

	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/health"
)

// The exit codes of check and status; run and the others use 0 and 1.
const (
	exitHealthy   = 0
	exitDegraded  = 1
	exitUnhealthy = 2
	exitUnknown   = 3
)

// exitError ends plegd with a code of its own. err may be nil: then everything
// has been said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func main() {
	// gRPC's own log says in its words what plegd's verdict says in ours.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs one command line and returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	code := usageCode(cmd)
	var exit *exitError
	if errors.As(err, &exit) {
		code = exit.code
	}
	if text := err.Error(); text != "" {
		_, _ = fmt.Fprintf(stderr, "plegd: %s\n", text)
	}
	return code
}

// usageCode is the exit code of a wrong flag or argument.
func usageCode(cmd *cobra.Command) int {
	switch cmd.Name() {
	case "check":
		if f := cmd.Flags().Lookup("output"); f != nil && f.Value.String() == "npd" {
			return npdUnknown
		}
		return exitUnknown
	case "status", "incidents":
		return exitUnknown
	}
	return 1
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "plegd",
		Short:         "Says why the container runtime makes a node NotReady, before it does",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = false
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w (see plegd %s --help)", flagError(err), cmd.Name())
	})
	root.AddCommand(newRunCommand(), newCheckCommand(), newStatusCommand(), newReasonsCommand(), newIncidentsCommand(), newReplayCommand(), newSimulateCommand(), newVersionCommand())
	root.AddCommand(buildTimeCommands()...)
	return root
}

func newVersionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, and with -o json the kubelet versions that the model was checked against",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch output {
			case "text":
			case "json":
				return printVersionJSON(cmd.OutOrStdout())
			default:
				return fmt.Errorf("--output: %q: want text or json", output)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "plegd, version %s (branch: %s, revision: %s)\n  build date:  %s\n  go version:  %s\n  platform:    %s/%s\n",
				version.Version, version.Branch, version.GetRevision(), version.BuildDate, version.GoVersion, version.GoOS, version.GoArch)
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// printVersionJSON prints what text says, and the kubelet versions that the model
// was checked against.
func printVersionJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		Version   string   `json:"version"`
		Branch    string   `json:"branch"`
		Revision  string   `json:"revision"`
		BuildDate string   `json:"build_date"`
		GoVersion string   `json:"go_version"`
		Platform  string   `json:"platform"`
		Kubelets  []string `json:"checked_kubelets"`
	}{
		version.Version, version.Branch, version.GetRevision(), version.BuildDate, version.GoVersion,
		version.GoOS + "/" + version.GoArch, health.CheckedKubelets(),
	})
}

func build() exporter.Build {
	return exporter.Build{Version: version.Version, Revision: version.Revision}
}
