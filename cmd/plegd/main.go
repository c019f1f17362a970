// Command plegd reports why a Kubernetes node's container runtime makes the
// kubelet report "PLEG is not healthy", and does so early.
//
// This package holds the commands and their flags. It holds no logic.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/prometheus/common/version"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/grpclog"

	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/view"
)

// The exit codes of check and status. Other commands end with 0 or 1, and a wrong
// flag or argument has a code of its own: see usageCode.
const (
	exitHealthy   = 0
	exitDegraded  = 1
	exitUnhealthy = 2
	exitUnknown   = 3
)

// exitError ends plegd with an exit code. err may be nil: then nothing more is
// printed.
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

// exit returns the error that ends plegd with a code.
func exit(code int, err error) error {
	if code == 0 && err == nil {
		return nil
	}
	return &exitError{code, err}
}

func main() {
	// plegd's verdict reports what gRPC would log.
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
	addCompletion(root)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	code := 1
	var exit *exitError
	if errors.As(err, &exit) {
		if code = exit.code; code == codeOfUsage {
			code = usageCode(cmd, args)
		}
	}
	if text := err.Error(); text != "" {
		_, _ = fmt.Fprintf(stderr, "plegd: %s\n", text)
	}
	return code
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "plegd",
		Short:         "Report why the container runtime makes a node NotReady, before it does",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		Example: `  sudo plegd run
  plegd status --watch
  plegd reasons RuntimeFrozen`,
		Version: cmp.Or(version.Version, "unknown"), // without a version there is no --version
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return usage(fromEnvironment(cmd.Flags(), os.LookupEnv))
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate(versionText())
	root.AddCommand(
		newRunCommand(), newCheckCommand(), newStatusCommand(), newReasonsCommand(), newIncidentsCommand(),
		newReplayCommand(), newBundleCommand(), newSimulateCommand(), newVersionCommand(),
	)
	root.AddCommand(buildTimeCommands()...)
	setUsage(root)
	return root
}

// addCompletion adds cobra's completion command, and makes an unknown shell an error.
// The output of root must be set.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	cmd, _, err := root.Find([]string{"completion"})
	if err != nil {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() } // without it all arguments are accepted
	cmd.ValidArgsFunction = nil
	setUsage(cmd)
}

func newVersionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, and with -o json the kubelet versions that the model was checked against",
		Args:  cobra.NoArgs,
	}
	output := outputFlag(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *output == "text" {
			_, err := io.WriteString(cmd.OutOrStdout(), versionText())
			return err
		}
		return view.WriteJSON(cmd.OutOrStdout(), map[string]any{
			"version": version.Version, "branch": version.Branch, "revision": version.GetRevision(),
			"build_date": version.BuildDate, "go_version": version.GoVersion, "platform": platform(),
			"checked_kubelets": health.CheckedKubelets(),
		})
	}
	return cmd
}

func platform() string { return version.GoOS + "/" + version.GoArch }

// versionText is the output of version and --version.
func versionText() string {
	return strings.Join([]string{
		fmt.Sprintf("plegd, version %s (branch: %s, revision: %s)", version.Version, version.Branch, version.GetRevision()),
		"  build date:  " + version.BuildDate, "  go version:  " + version.GoVersion, "  platform:    " + platform(), "",
	}, "\n")
}

func build() exporter.Build {
	return exporter.Build{Version: version.Version, Revision: version.Revision}
}
