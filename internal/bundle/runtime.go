package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/stacks"
)

const (
	callTimeout = 3 * time.Second // of each call to the runtime
	infoBytes   = 64 << 10        // of CRI-O's /info
)

// Runtime is the part of the runtime's own view: sandboxes and containers with their states and
// ages, the shims beside them, and plugins with load errors. It makes two lists and one call for
// the plugins, each with a limit.
func Runtime(table *proc.Table, client *cri.Client, socket string) Part {
	return Part{Name: "runtime", Gather: func(ctx context.Context, add Add) error {
		sandboxes, sandboxErr := limited(ctx, client.ListPodSandbox)
		containers, containerErr := limited(ctx, client.ListContainers)
		add("runtime/pods.txt", podsText(sandboxes, containers, time.Now()))
		text, shimErr := shimsText(ctx, table, slices.Concat(sandboxes, containers))
		add("runtime/shims.txt", text)
		return errors.Join(sandboxErr, containerErr, shimErr, addPlugins(ctx, client, socket, add))
	}}
}

func limited[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return call(ctx)
}

// errNotContainerd stands for gRPC's own text, which names a service and a method.
var errNotContainerd = errors.New("the runtime does not serve them")

// addPlugins adds containerd's plugins, or the description that CRI-O serves at /info.
func addPlugins(ctx context.Context, client *cri.Client, socket string, add Add) error {
	plugins, err := client.Plugins(ctx)
	if err == nil {
		b, _ := json.MarshalIndent(plugins, "", "  ") // plain values cannot fail
		add("runtime/plugins.json", b)
		return nil
	}
	info, infoErr := limited(ctx, func(ctx context.Context) ([]byte, error) {
		return cri.Get(ctx, socket, cri.PageInfo, infoBytes)
	})
	if infoErr == nil {
		add("runtime/info.json", info)
		return nil
	}
	if cri.AsError(err).Code == cri.CodeUnimplemented {
		err = errNotContainerd
	}
	return fmt.Errorf("neither containerd's plugins (%w) nor CRI-O's own description (%w)", err, infoErr)
}

func podsText(sandboxes, containers []*cri.Entry, listed time.Time) []byte {
	byPod := map[string][]*cri.Entry{}
	for _, c := range containers {
		byPod[c.SandboxID] = append(byPod[c.SandboxID], c)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d sandboxes, %d containers\nSTATE AGE ID NAME\n", len(sandboxes), len(containers))
	for _, s := range sandboxes {
		writeEntry(&b, "", s, listed)
		for _, c := range byPod[s.ID] {
			writeEntry(&b, "  ", c, listed)
		}
		delete(byPod, s.ID)
	}
	for id, orphans := range byPod {
		fmt.Fprintf(&b, "containers of the sandbox %q, which is not listed\n", id)
		for _, c := range orphans {
			writeEntry(&b, "  ", c, listed)
		}
	}
	return b.Bytes()
}

func writeEntry(b *bytes.Buffer, indent string, e *cri.Entry, listed time.Time) {
	age := "of unknown age"
	elapsed, isKnown := e.Age(listed)
	if isKnown {
		age = elapsed.Round(time.Second).String()
	}
	name := e.PodNamespace + "/" + e.PodName
	if !e.Sandbox {
		name = e.Name
	}
	fmt.Fprintf(b, "%s%s %s %s %q\n", indent, e.State, age, e.ID, name)
}

// shimsText lists the shims and conmons with parent, children and the pod that they serve.
func shimsText(ctx context.Context, table *proc.Table, listed []*cri.Entry) ([]byte, error) {
	pods := map[string]string{}
	for _, e := range listed {
		pods[e.ID] = e.PodNamespace + "/" + e.PodName
	}
	all, err := table.Processes(ctx, time.Second)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintln(&b, "PID STATE AGE PARENT ID POD CHILDREN")
	err = eachProcess(ctx, table, func(p proc.Process) {
		if !family.NamedShim(p) {
			return
		}
		id := family.ShimID(p, table.Args(p.ID()))
		pod, ok := pods[id]
		if !ok {
			pod = "in no list"
		}
		age := (proc.Uptime() - proc.TicksToDuration(p.Start)).Round(time.Second)
		fmt.Fprintf(&b, "%d %c %s %d(%s) %s %q %s\n", p.PID, p.State, age, p.PPID, all.ByPID[p.PPID].Comm, id, pod, childList(all, p.PID))
	})
	return b.Bytes(), err
}

func childList(all *proc.Processes, pid int) string {
	var out []string
	for _, c := range all.Children(pid) {
		out = append(out, fmt.Sprintf("%d(%s %c)", c.PID, c.Comm, c.State))
	}
	return strings.Join(out, " ")
}

// Stacks is the part of the goroutine dumps that the runtime serves or has left, with their
// analysis. It sends no signal.
func Stacks(table *proc.Table, targets []stacks.Target) Part {
	return Part{Name: "goroutines", Gather: func(ctx context.Context, add Add) error {
		reader := &stacks.Reader{Table: table}
		var errs []error
		for _, target := range targets {
			found, err := reader.Read(ctx, target)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			name := fmt.Sprintf("stacks/%s-%d", found.Program, found.PID)
			add(name+".txt", found.Text)
			report, err := found.Report()
			if err != nil {
				errs = append(errs, err)
				continue
			}
			var analysis bytes.Buffer
			fmt.Fprintf(&analysis, "%s, %s\n", found.Source, found.Time.UTC().Format(time.RFC3339))
			_ = report.WriteText(&analysis) // a buffer takes all
			add(name+"-analysis.txt", analysis.Bytes())
		}
		return errors.Join(errs...)
	}}
}

// Mounts is the part of the mount tables of the runtime and the hops behind it, as each of them sees it.
func Mounts(table *proc.Table, targets []stacks.Target) Part {
	return Part{Name: "mounts of the runtime", Gather: func(_ context.Context, add Add) error {
		var errs []error
		for _, target := range targets {
			b, err := table.ReadSlow(proc.Path(table.ProcFS, target.PID, "mountinfo"), maxMountBytes)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			add(fmt.Sprintf("processes/%d-mountinfo.txt", target.PID), b)
		}
		return errors.Join(errs...)
	}}
}
