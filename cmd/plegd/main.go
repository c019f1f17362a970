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
	"runtime/debug"
	"syscall"
	"time"

	"github.com/prometheus/common/version"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/grpclog"

	"github.com/plegd/plegd/internal/exporter"
)

// The exit codes of check and status. Other commands end with 0 or 1. A wrong flag or
// argument has a code that is no verdict: see usageCode.
const (
	exitHealthy   = 0
	exitDegraded  = 1
	exitUnhealthy = 2
	exitUnknown   = 3
	exitUsage     = 4
	exitRunUsage  = 2
	codeOfUsage   = -1 // usageCode has the command's
)

// exitError ends plegd with an exit code. Without an error nothing more is printed.
type exitError struct {
	error
	code int
}

// exit returns the error that ends plegd with a code.
func exit(code int, err error) error {
	if code == 0 && err == nil {
		return nil
	}
	return &exitError{err, code}
}

func main() {
	allowTimerSlack(os.Args)
	// plegd's verdict reports what gRPC would log.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
	// A crash ends plegd by a signal: Go's exit status of it is 2, the one with which systemd does not
	// restart plegd.
	debug.SetTraceback("crash")
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan int, 1)
	go func() { result <- execute(ctx, os.Args[1:], os.Stdout, os.Stderr) }()
	os.Exit(await(os.Args[1:], signals, cancel, result))
}

const (
	// endTimeout is the time after which a signal ends a command that hangs, as in a read of a
	// file on a hung disk.
	endTimeout = 900 * time.Millisecond
	// daemonEndTimeout is the daemon's: it saves its state first.
	daemonEndTimeout = 5 * time.Second
)

// await returns the exit code of a command. The first signal cancels the command. The second one,
// or the end of a timeout, ends it.
func await(args []string, signals <-chan os.Signal, cancel context.CancelFunc, result <-chan int) int {
	code := 1
	timeout := endTimeout
	select {
	case code := <-result:
		return code
	case s := <-signals:
		if number, ok := s.(syscall.Signal); ok {
			code = 128 + int(number) // as of a process that a signal ends
		}
	}
	if len(args) > 0 && args[0] == "run" {
		code = 0
		timeout = daemonEndTimeout
	}
	cancel()
	select {
	case code := <-result:
		return code
	case <-signals:
	case <-time.After(timeout):
	}
	return code
}

// execute runs one command line and returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" { // as cobra makes it, it accepts an unknown shell
			c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
			c.ValidArgsFunction = nil
		}
	}
	setUsage(root)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	code := 1
	var exit *exitError
	if errors.As(err, &exit) {
		code = exit.code
		err = exit.error
	}
	if code == codeOfUsage {
		code = usageCode(cmd, args)
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "plegd: %s\n", err)
	}
	return code
}

// buildTimeCommands exist with the build tag gendocs only.
var buildTimeCommands []*cobra.Command

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
	root.SetVersionTemplate(version.Print("plegd") + "\n")
	root.AddCommand(
		newRunCommand(), newCheckCommand(), newStatusCommand(), newReasonsCommand(), newIncidentsCommand(),
		newReplayCommand(), newBundleCommand(), newStacksCommand(), newDrillCommand(), newSimulateCommand(),
		newVersionCommand(),
	)
	root.AddCommand(newInstallCommand())
	root.AddCommand(buildTimeCommands...)
	return root
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			_, _ = fmt.Fprintln(cmd.OutOrStdout(), version.Print("plegd"))
		},
	}
}

func build() exporter.Build {
	return exporter.Build{Version: version.Version, Revision: version.Revision}
}
