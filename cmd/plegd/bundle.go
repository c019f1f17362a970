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
)

const (
	// bundleIncidents is how many incidents a bundle holds, the newest.
	bundleIncidents = 10
	// bundleDiagnosis bounds the diagnosis where no daemon runs.
	bundleDiagnosis = 8 * time.Second
)

func newBundleCommand() *cobra.Command {
	cfg := daemon.DefaultConfig()
	cfg.StateDir = defaultStateDir()
	var output string
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Write one archive to attach to a ticket, before anything is restarted",
		Long: `Writes a .tar.gz with plegd's status, incidents and metrics; for each process of
the wait chain its status, threads with wait channels and stacks, open files and
cgroup; mounts, file locks, unix sockets with their queues, pressure, and the
newest kernel messages.

It takes at most 30 s and 20 MiB, and says what could not be had. It sends no
signal and changes nothing. It holds names of pods and containers.`,
		Example: `  sudo plegd bundle
  sudo plegd bundle -o /var/tmp/node-17.tar.gz
  sudo plegd bundle -o - | ssh desk 'cat > node-17.tar.gz'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd.Flags(), os.LookupEnv); err != nil {
				return usage(err)
			}
			cfg.Given = cmd.Flags().Changed
			if err := cfg.Validate(); err != nil {
				return usage(err)
			}
			return writeBundle(cmd.Context(), cfg, output, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&output, "output", "o", "", "file to write, - for the standard output; empty: plegd-bundle-NODE-TIME.tar.gz in the working directory")
	fs.StringVar(&cfg.ControlSocket, "control-socket", cfg.ControlSocket, "the daemon's control socket; empty: make a diagnosis without a daemon")
	fs.StringVar(&cfg.StateDir, "state-dir", cfg.StateDir, "the daemon's state directory, read where no daemon runs")
	watchFlags(fs, &cfg)
	return cmd
}

// writeBundle gathers and writes the archive, and reports on errs where it is and
// what could not be had. The file appears whole or not at all.
func writeBundle(ctx context.Context, cfg daemon.Config, output string, stdout, errs io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, bundle.MaxTime) // the diagnosis counts too
	defer cancel()
	node, err := os.Hostname()
	if err != nil {
		node = "node"
	}
	if output == "-" {
		_, err := bundle.Write(ctx, stdout, node, version.Version, bundleParts(ctx, cfg))
		return err
	}
	path := cmp.Or(output, fmt.Sprintf("plegd-bundle-%s-%s.tar.gz", node, time.Now().UTC().Format("20060102T150405Z")))
	f, err := os.CreateTemp(filepath.Dir(path), ".plegd-bundle-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write the bundle %s: %w (give another file with --output)", path, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone once it is renamed
	m, err := bundle.Write(ctx, f, node, version.Version, bundleParts(ctx, cfg))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the bundle %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write the bundle %s: %w", path, err)
	}
	_, _ = fmt.Fprintf(errs, "%s: %d files in %.1f s. It holds names of pods and containers.\n", path, len(m.Files), m.Seconds)
	for _, missing := range m.Missing {
		_, _ = fmt.Fprintf(errs, "  without %s: %.200q\n", missing.Part, missing.Error)
	}
	return nil
}

// bundleParts are the parts, the most telling first: what is wrong now.
func bundleParts(ctx context.Context, cfg daemon.Config) []bundle.Part {
	doc, err := diagnose(ctx, cfg, bundleDiagnosis)
	status := bundle.Part{Name: "status", Gather: func(_ context.Context, add bundle.Add) error {
		if err != nil {
			return err
		}
		var page, raw bytes.Buffer
		_, textErr := printText(&page, doc)
		_, jsonErr := printJSON(&raw, doc)
		add("plegd/status.txt", page.Bytes(), 0)
		add("plegd/status.json", raw.Bytes(), 0)
		return errors.Join(textErr, jsonErr)
	}}
	var pids []int
	if err == nil {
		pids = bundle.Involved(doc)
	}
	return []bundle.Part{
		status,
		bundle.Processes(cfg.ProcFS, cfg.SysFS, pids),
		bundle.Sockets(),
		bundle.Node(cfg.ProcFS),
		bundle.Kernel(),
		bundle.Metrics(cfg.ControlSocket),
		{Name: "incidents", Gather: func(ctx context.Context, add bundle.Add) error {
			return addIncidents(ctx, incidentsFrom{cfg.ControlSocket, cfg.StateDir}, add)
		}},
	}
}

// addIncidents adds the newest incidents.
func addIncidents(ctx context.Context, from incidentsFrom, add bundle.Add) error {
	list, err := from.list(ctx, io.Discard)
	if err != nil {
		return err
	}
	var errs []error
	for _, summary := range list[:min(len(list), bundleIncidents)] {
		one, err := from.one(ctx, summary.ID, io.Discard)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		var doc bytes.Buffer
		if err := indented(&doc, one); err != nil {
			errs = append(errs, err)
			continue
		}
		add("plegd/incidents/"+one.ID+".json", doc.Bytes(), 4<<20)
	}
	return errors.Join(errs...)
}
