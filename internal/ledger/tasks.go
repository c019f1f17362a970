package ledger

import (
	"fmt"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// manyUnreaped is from how many children that have ended it is read whether they use up the tasks of the runtime's cgroup.
const manyUnreaped = 50

// unreapedTasks keeps the process of the runtime's cgroup that does not reap its children, while these are most of the tasks
// that a limit allows and it is reached.
func (p *pass) unreapedTasks(all *proc.Processes) {
	since := all.At
	if p.leak != nil {
		since = p.leak[0].Since
	}
	p.leak = nil
	for pid, count := range all.Unreaped {
		if count < manyUnreaped || pid == p.pids[0] {
			continue
		}
		level, isIn := p.limitOf(pid)
		parent, err := p.Table.Alive(pid)
		isReached := level.Limit > 0 && level.Used >= level.Limit-level.Limit/50
		if err != nil || !isIn || !isReached || int64(count) <= level.Limit/2 {
			continue
		}
		runtime := p.runtime()
		p.leak = []facts.Finding{{Reason: kernelLimitReached, Since: since, Chain: facts.Chain{At: time.Now(), Links: []facts.Link{
			{Kind: facts.KindRuntime, Name: all.ByPID[runtime.PID].Comm, PID: runtime.PID, State: facts.LinkFailing, Since: since,
				Evidence: fmt.Sprintf("pids.max of %s is %d, pids.current %d", level.Path, level.Limit, level.Used)},
			{Kind: facts.KindProcess, Name: parent.Comm, PID: pid, State: facts.LinkFailing, Since: since,
				Evidence: fmt.Sprintf("%d of them are children that have ended and that it does not reap", count)},
		}}}}
		return
	}
}

// limitOf returns the level of the runtime's cgroup that is nearest to its limit of tasks, and whether a process is in it.
func (p *pass) limitOf(pid int) (level proc.Usage, isIn bool) {
	groups, err := p.tree.Of(p.pids[0])
	if err != nil {
		return proc.Usage{}, false
	}
	level = p.tree.Fullest(groups, "pids", "pids.current", "pids.max")
	groups, err = p.tree.Of(pid)
	if err != nil {
		return proc.Usage{}, false
	}
	for _, path := range p.tree.Up(groups, "pids") {
		isIn = isIn || path == level.Path
	}
	return level, isIn
}
