package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/common/version"
	"github.com/spf13/cobra"

	"github.com/plegd/plegd/internal/bundle"
	"github.com/plegd/plegd/internal/daemon"
	"github.com/plegd/plegd/internal/view"
)

const (
	bundleIncidents = 10              // in a bundle, the newest
	bundleDiagnosis = 8 * time.Second // limit of the diagnosis if no daemon runs
)

func newBundleCommand() *cobra.Command {
	cfg := daemon.DefaultConfig()
	var from incidentsFrom
	var output string
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Write one archive to attach to a ticket, before anything is restarted",
		Long: `Writes a .tar.gz with plegd's status, incidents and metrics; for each process of
the wait chain its status, threads with wait channels and stacks, open files and
cgroup; mounts, file locks, unix sockets with their queues, pressure, and the
newest kernel messages.

It takes at most 30 s and 20 MiB, and lists the parts that it could not get. It
sends no signal and changes nothing. It holds names of pods and containers.`,
		Example: `  sudo plegd bundle
  sudo plegd bundle -o - | ssh desk 'cat > node-17.tar.gz'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Given = cmd.Flags().Changed
			if err := cfg.Validate(); err != nil {
				return usage(err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), bundle.MaxTime) // the diagnosis counts too
			defer cancel()
			node, _ := os.Hostname()
			path := cmp.Or(output, fmt.Sprintf("plegd-bundle-%s-%s.tar.gz", node, time.Now().UTC().Format("20060102T150405Z")))
			write := func(w io.Writer) (*bundle.Manifest, error) {
				return bundle.Write(ctx, w, node, version.Version, bundleParts(ctx, cfg, from))
			}
			if output == "-" {
				_, err := write(cmd.OutOrStdout())
				return err
			}
			if err := writeBundle(path, write, cmd.ErrOrStderr()); err != nil {
				return fmt.Errorf("write the bundle %s: %w (give another file with --output)", path, err)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "",
		"file to write, - for the standard output; empty: plegd-bundle-NODE-TIME.tar.gz in the working directory")
	from.flags(cmd, "make a diagnosis without a daemon")
	watchFlags(cmd.Flags(), &cfg)
	return cmd
}

// writeBundle writes the archive to a file, which appears whole or not at all, and
// reports its path and the missing parts.
func writeBundle(path string, write func(io.Writer) (*bundle.Manifest, error), stderr io.Writer) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".plegd-bundle-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone once it is renamed
	m, err := write(f)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(stderr, "%s: %d files in %.1f s. It holds names of pods and containers.\n",
		path, len(m.Files), m.Seconds)
	for _, missing := range m.Missing {
		_, _ = fmt.Fprintf(stderr, "  without %.200q\n", missing)
	}
	return nil
}

// bundleParts are the parts, the most important first: the current verdict.
func bundleParts(ctx context.Context, cfg daemon.Config, from incidentsFrom) []bundle.Part {
	limited, cancel := context.WithTimeout(ctx, bundleDiagnosis)
	defer cancel()
	d, err := diagnose(limited, from.Client, cfg)
	var pids []int
	if err == nil {
		pids = bundle.Involved(d.Snapshot)
	}
	return []bundle.Part{
		{Name: "status", Gather: func(_ context.Context, add bundle.Add) error {
			for _, format := range []string{"text", "json"} {
				var out bytes.Buffer
				if err == nil {
					_, err = d.print(&out, format, "")
					add("plegd/status."+format, out.Bytes())
				}
			}
			return err
		}},
		bundle.Processes(cfg.ProcFS, cfg.SysFS, pids),
		bundle.Sockets(),
		bundle.Node(cfg.ProcFS),
		{Name: "metrics", Gather: func(ctx context.Context, add bundle.Add) error {
			b, err := from.Get(ctx, view.PathMetrics)
			add("plegd/metrics.txt", b)
			return err
		}},
		{Name: "incidents", Gather: func(ctx context.Context, add bundle.Add) error {
			list, err := from.list(ctx, io.Discard)
			for _, summary := range list[:min(len(list), bundleIncidents)] {
				one, oneErr := from.one(ctx, summary.ID, io.Discard)
				var doc bytes.Buffer
				if oneErr == nil {
					oneErr = view.WriteJSON(&doc, one)
				}
				add("plegd/incidents/"+summary.ID+".json", doc.Bytes())
				err = errors.Join(err, oneErr)
			}
			return err
		}},
	}
}
