package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/internal/fakeruntime"
)

func newSimulateCommand() *cobra.Command {
	opts := fakeruntime.SimulateOptions{Socket: "plegd-simulate.sock", Pods: 110, Containers: 2}
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Serve a fake container runtime that fails on demand",
		Long: `Serves a fake CRI runtime (runtime.v1) on a unix socket until SIGINT or SIGTERM.
It holds pods as a kubelet makes them, refuses every call that would change them,
and fails as --failpoints specifies; the failpoints can be changed while it runs by
"plegd simulate failpoints".

Failpoints follow containerd's syntax, NAME=[N*]TYPE[(ARG)][->[N*]TYPE[(ARG)]...],
several with ";" between. NAME is a call (ListContainers), * for all others, or
socket for the faults below gRPC. With N a term applies N times, then the next one.

  calls    off, error(CODE[: message]), delay(2s), hang, panic, oversize(17MiB),
           empty, garbage; Status: notready(RuntimeReady|NetworkReady)
  socket   off, noaccept, close, nosettings, settingsonly, garbage, freeze`,
		Example: `  plegd simulate --socket /tmp/demo/runtime.sock --churn 0.01
  plegd simulate failpoints --socket /tmp/demo/runtime.sock 'ListContainers=hang'
  plegd simulate failpoints --socket /tmp/demo/runtime.sock 'socket=freeze'
  plegd simulate failpoints --socket /tmp/demo/runtime.sock 'Status=3*error(Unavailable)->delay(2s)'
  plegd simulate failpoints --socket /tmp/demo/runtime.sock ''`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.Validate(); err != nil {
				return usage(err)
			}
			return fakeruntime.Simulate(cmd.Context(), opts, cmd.ErrOrStderr())
		},
	}
	cmd.PersistentFlags().StringVar(&opts.Socket, "socket", opts.Socket,
		"`path` of the unix socket that is served; one left by a dead process is replaced")
	flags := cmd.Flags()
	flags.IntVar(&opts.Pods, "pods", opts.Pods, "number of `pods`")
	flags.IntVar(&opts.Containers, "containers", opts.Containers, "running `containers` in each pod")
	flags.Float64Var(&opts.Churn, "churn", opts.Churn,
		"`fraction` of the pods, 0 to 1, in which each second a container exits and a new one takes its place")
	flags.StringVar(&opts.Failpoints, "failpoints", "", "failpoints to begin with, as `NAME=TYPE;...`")

	failpoints := &cobra.Command{
		Use:   "failpoints [SPEC]",
		Short: "Show or change the failpoints of a running plegd simulate",
		Long: `Prints what is left of the failpoints of the plegd simulate that serves at --socket.
SPEC takes the place of all of them before ('' for none).`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Second)
			defer cancel()
			left, err := fakeruntime.ReadFailpoints(ctx, opts.Socket)
			if len(args) > 0 {
				left, err = fakeruntime.WriteFailpoints(ctx, opts.Socket, args[0])
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), left)
			return err
		},
	}
	cmd.AddCommand(failpoints)
	return cmd
}
