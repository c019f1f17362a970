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
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/bundle"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/daemon"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/stacks"
	"github.com/plegd/plegd/internal/view"
)

const (
	bundleIncidents = 10              // in a bundle, the newest
	bundleDiagnosis = 8 * time.Second // limit of the diagnosis if no daemon runs
)

func newBundleCommand() *cobra.Command {
	cfg := daemon.DefaultConfig()
	var source incidentSource
	var output string
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Write one archive to attach to a ticket, before anything is restarted",
		Long: `Writes a .tar.gz with plegd's status, incidents and metrics; for each process of
the wait chain its status, threads with wait channels and stacks, open files and
cgroup; every thread in D; sandboxes, containers and shims with states and ages,
the runtime's plugins and goroutines; mounts, file locks, inotify instances, unix
sockets with their queues, pressure, and the newest kernel messages.

It takes at most 30 s and 20 MiB, and lists the parts that it could not get. It
sends no signal and changes nothing. It holds names of pods and containers. An
existing file is replaced; a device, pipe or socket is written to.`,
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
				return bundle.Write(ctx, w, node, version.Version, bundleParts(ctx, cfg, source))
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
	source.flags(cmd, "make a diagnosis without a daemon")
	watchFlags(cmd.Flags(), &cfg)
	return cmd
}

// writeBundle writes the archive to a path and reports its size and the missing parts. A
// regular file appears whole or not at all; a device, pipe or socket is written to, never replaced.
func writeBundle(path string, write func(io.Writer) (*bundle.Manifest, error), stderr io.Writer) error {
	var m *bundle.Manifest
	content := func(w io.Writer) (err error) {
		m, err = write(w)
		return err
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		err = writeInto(path, content)
	case err == nil:
		_, _ = fmt.Fprintf(stderr, "%s exists and is replaced\n", path)
		path, err = filepath.EvalSymlinks(path) // the file, not a link to it
		if err == nil {
			err = replaceFile(path, 0o600, content)
		}
	default:
		err = replaceFile(path, 0o600, content)
	}
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(stderr, "%s: %d files in %.1f s. It holds names of pods and containers.\n",
		path, len(m.Files), m.Seconds)
	for _, missing := range m.Missing {
		_, _ = fmt.Fprintln(stderr, "  without "+view.Printable(missing))
	}
	return nil
}

// replaceFile writes a file beside the path and renames it to the path, which is replaced at once.
func replaceFile(path string, mode os.FileMode, content func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".plegd-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone once it is renamed
	err = content(f)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// writeInto writes to a device or a pipe.
func writeInto(path string, content func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0) // a pipe that nobody reads is an error
	if err != nil {
		return err
	}
	err = content(f)
	return errors.Join(err, f.Close())
}

// bundleParts are the parts, the most important first: the current verdict.
func bundleParts(ctx context.Context, cfg daemon.Config, source incidentSource) []bundle.Part {
	limited, cancel := context.WithTimeout(ctx, bundleDiagnosis)
	defer cancel()
	d, err := diagnose(limited, source.Client, cfg)
	table := proc.NewTable(cfg.ProcFS)
	parts := []bundle.Part{{Name: "status", Gather: func(_ context.Context, add bundle.Add) error {
		if err != nil {
			return err
		}
		return addStatus(d, add)
	}}}
	if err == nil {
		targets := stacks.Targets(&d.Facts)
		parts = append(parts, bundle.Processes(table, cfg.SysFS, bundle.Involved(d.Snapshot)), bundle.Stacks(table, targets),
			bundle.Mounts(table, targets))
	}
	if err == nil && d.Facts.Endpoint.Path != "" {
		parts = append(parts, runtimePart(table, d.Facts.Endpoint.Path))
	}
	return append(parts,
		bundle.StuckThreads(table),
		bundle.Sockets(),
		bundle.Node(cfg.ProcFS),
		bundle.Usage(table),
		bundle.Part{Name: "metrics", Gather: func(ctx context.Context, add bundle.Add) error {
			b, err := source.Get(ctx, view.PathMetrics)
			add("plegd/metrics.txt", b)
			return err
		}},
		bundle.Part{Name: "incidents", Gather: func(ctx context.Context, add bundle.Add) error { return addIncidents(ctx, source, add) }},
	)
}

// runtimePart is the part of the runtime's own view, over a connection of its own.
func runtimePart(table *proc.Table, socket string) bundle.Part {
	part := bundle.Part{Name: "runtime"}
	part.Gather = func(ctx context.Context, add bundle.Add) error {
		client := cri.New(cri.Options{Path: socket})
		defer func() { _ = client.Close() }() // only read from
		return bundle.Runtime(table, client, socket).Gather(ctx, add)
	}
	return part
}

func addStatus(d diagnosis, add bundle.Add) error {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		if _, err := d.print(&out, format, ""); err != nil {
			return err
		}
		add("plegd/status."+format, out.Bytes())
	}
	return nil
}

func addIncidents(ctx context.Context, source incidentSource, add bundle.Add) error {
	list, err := source.list(ctx, io.Discard)
	for _, summary := range list[:min(len(list), bundleIncidents)] {
		one, oneErr := source.one(ctx, summary.ID, io.Discard)
		var doc bytes.Buffer
		if oneErr == nil {
			oneErr = view.WriteJSON(&doc, one)
		}
		add("plegd/incidents/"+summary.ID+".json", doc.Bytes())
		err = errors.Join(err, oneErr)
	}
	return err
}
