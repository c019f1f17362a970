package ledger

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// exhausted returns the topmost cgroup, of those that a new pod shares with the runtime or with other pods, that is at a
// limit now; ok is false where none is.
func (p *pass) exhausted(ctx context.Context) (link facts.Link, ok bool) {
	files := proc.NewFiles(p.unread.Add)
	tree := proc.NewCgroupTree(p.Table.ProcFS, p.SysFS, files)
	shared := p.sharedLevels(ctx, tree)
	for _, dir := range slices.SortedFunc(maps.Keys(shared), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	}) {
		limit := limitReached(files, dir)
		if limit != "" {
			place := "/sys" + strings.TrimPrefix(dir, p.SysFS) + "/"
			return facts.Link{Kind: facts.KindCgroup, Name: shared[dir], State: facts.LinkFailing, Evidence: place + limit}, true
		}
	}
	return facts.Link{}, false
}

// levels are cgroups of processes: which of them a new pod shares is found by the pods that are there.
type levels struct {
	tree     proc.CgroupTree
	firstPod map[string]string // by directories
	shared   map[string]string // paths by directories
}

// sharedLevels returns the paths of the runtime's cgroup, of those that hold several pods, and of those above, by their
// directories.
func (p *pass) sharedLevels(ctx context.Context, tree proc.CgroupTree) map[string]string {
	l := &levels{tree: tree, firstPod: map[string]string{}, shared: map[string]string{}}
	l.add(p.started.runtime.PID, "")
	all := p.readProcesses(ctx, tableAge)
	if all == nil {
		return l.shared
	}
	for _, shim := range p.shims {
		last, isServed := p.served[shim.ID()]
		if !isServed || last.entry.Pod() == "" {
			continue
		}
		l.add(shim.PID, last.entry.Pod())
		for _, process := range all.Children(shim.PID) {
			l.add(process.PID, last.entry.Pod())
		}
	}
	return l.shared
}

// add adds the cgroups of a process of a pod, or of the runtime: "".
func (l *levels) add(pid int, pod string) {
	groups, err := l.tree.Of(pid)
	if err != nil { // it has ended, or its cgroups are not visible
		return
	}
	for _, controller := range []string{"pids", ""} {
		for dir, path := range l.tree.Up(groups, controller) {
			first := cmp.Or(l.firstPod[dir], pod)
			l.firstPod[dir] = first
			if first != pod || pod == "" {
				l.shared[dir] = path
			}
		}
	}
}

// limitReached describes the limit of a cgroup's directory that leaves no room for another pod, "" for none.
func limitReached(files proc.Files, dir string) string {
	used := files.Number(dir, "pids.current")
	limit := files.Limit(dir, "pids.max")
	if limit > 0 && used >= limit {
		return fmt.Sprintf("pids.max is %d, pids.current %d", limit, used)
	}
	groups := int64(files.Counters(dir, "cgroup.stat")["nr_descendants"]) //nolint:gosec // far below 2^63
	limit = files.Limit(dir, "cgroup.max.descendants")
	if limit > 0 && groups >= limit {
		return fmt.Sprintf("cgroup.max.descendants is %d, and it has %d", limit, groups)
	}
	return ""
}
