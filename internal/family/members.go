package family

import (
	"context"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/proc"
)

// Members tells the shims and helpers of a runtime apart from other processes of their names. An
// answer counts while the process lives under its name. For one goroutine.
type Members struct {
	table   *proc.Table
	answers map[claim]Answer
}

// claim is that a process has a role for its owner.
type claim struct {
	process proc.ID
	comm    string
	role    string
	owner   int
}

// helper is the role of a helper.
const helper = "helper"

// maxClaims bounds the remembered answers.
const maxClaims = 4096

// NewMembers returns the members of a table's processes.
func NewMembers(table *proc.Table) *Members {
	return &Members{table: table, answers: map[claim]Answer{}}
}

// Shim answers whether a process is a shim or conmon of the runtime with a pid.
func (m *Members) Shim(ctx context.Context, p proc.Process, runtime int) Answer {
	if !NamedShim(p) {
		return refused("%q is not the name of a shim", p.Comm)
	}
	return m.prove(ctx, p, runtime, "shim", Shim)
}

// Shims returns the shims and conmons of the runtime with a pid, which serves at sockets with these
// names. The parent of a shim is the runtime, or a process that the runtime descends from: shims are
// left to these when the process that started them ends. So those of a runtime in a pod do not
// count, nor another user's. unread is called for one whose proof cannot be read.
func (m *Members) Shims(ctx context.Context, all *proc.Processes, runtime int, sockets []string, unread func(error)) []proc.Process {
	var shims []proc.Process
	program := all.ByPID[runtime].Comm
	for _, parent := range all.Ancestors(runtime) {
		for _, p := range all.Children(parent) {
			if p.PID == runtime || !NamedShim(p) {
				continue
			}
			isShim, err := m.serves(ctx, p, runtime, program, sockets)
			unread(err)
			if isShim {
				shims = append(shims, p)
			}
		}
	}
	return shims
}

// serves reports whether a process is a shim of the runtime. The error is why that is not known.
func (m *Members) serves(ctx context.Context, p proc.Process, runtime int, program string, sockets []string) (bool, error) {
	question := claim{process: p.ID(), comm: p.Comm, role: program + " at " + strings.Join(sockets, " "), owner: runtime}
	_, known := m.answers[question]
	if known { // and its arguments need not be read again
		return true, nil
	}
	args, err := m.argsOf(p)
	if !Serves(program, sockets, p.Comm, args) {
		return false, err
	}
	answer := m.Shim(ctx, p, runtime)
	if answer.Proven() {
		m.keep(question, answer)
	}
	return answer.Proven(), answer.Err
}

// argsOf returns the arguments of a process; the error is why they are not known.
func (m *Members) argsOf(p proc.Process) ([]string, error) {
	args := m.table.Args(p.ID())
	if args != nil {
		return args, nil
	}
	_, err := m.table.Alive(p.PID)
	if err != nil {
		return nil, err
	}
	return nil, &proc.ReadError{Path: proc.Path(m.table.ProcFS, p.PID, "cmdline"), Outcome: proc.Late}
}

// Kubelet answers whether a process is a kubelet of the node.
func (m *Members) Kubelet(ctx context.Context, p proc.Process) Answer {
	return m.prove(ctx, p, 1, "kubelet", Kubelet)
}

// Hop answers whether a process is the daemon that it is named after, behind its owner in the path of a
// call: pid 1 for the first one.
func (m *Members) Hop(ctx context.Context, p proc.Process, owner int) Answer {
	return m.prove(ctx, p, owner, "hop", Hop)
}

// Helper answers whether a process is a helper of its owner, the runtime or a shim: top is the
// owner's child from which it descends, or the process itself.
func (m *Members) Helper(ctx context.Context, p, top, owner proc.Process) Answer {
	answer := m.prove(ctx, p, owner.PID, helper, belongs) // first: containers' processes are many
	if !answer.Proven() && answer.Err == nil {
		return answer
	}
	args := m.table.Args(top.ID())
	if !endsSoon(top, owner, args) {
		answer = refused("%q may run for long", top.Comm)
		// What a shim does not wait for, as a logger, it starts as well.
		answer.Lasts = !NamedShim(owner) && !NamedShim(top) && !slices.Contains(daemons, top.Comm)
		return answer
	}
	if NamedShim(owner) && top.Comm != owner.Comm && !runsOCI(top, args) {
		keeps := m.keepsPipe(top.PID, owner.PID)
		if !keeps.Proven() {
			return keeps
		}
	}
	return answer
}

// Worker answers whether a child that may run for long works for its owner alone, as a decompressor does: it keeps a pipe
// open that the owner reads, and is in its network namespace. One that forwards connections, or runs a command in a
// container, waits for others by design.
func (m *Members) Worker(ctx context.Context, p, owner proc.Process) Answer {
	question := claim{process: p.ID(), comm: p.Comm, role: "worker", owner: owner.PID}
	answer, found := m.answers[question]
	if found {
		return answer
	}
	if !m.Helper(ctx, p, p, owner).Lasts || IsOCI(p) {
		return refused("%q is no child that may run for long", p.Comm)
	}
	shares, err := proc.SharesNamespace(m.table.ProcFS, p.PID, owner.PID, "net")
	switch {
	case err != nil:
		return unproved(err)
	case shares:
		answer = m.keepsPipe(p.PID, owner.PID)
	default:
		answer = refused("it is in another network namespace than its parent")
	}
	if answer.Err == nil {
		m.keep(question, answer)
	}
	return answer
}

// hasOwnMounts reports whether a process is known to be in another mount namespace than its owner. So are
// the processes of containers, of which there are many: nothing else is read of these.
func (m *Members) hasOwnMounts(pid, owner int) bool {
	shares, err := proc.SharesNamespace(m.table.ProcFS, pid, owner, "mnt")
	return err == nil && !shares
}

// keepsPipe answers whether a process keeps a pipe open that its owner reads, as what the owner
// started and waits for does. A daemon that a hook has left has none: a shim adopts it.
func (m *Members) keepsPipe(pid, owner int) Answer {
	procfs := m.table.ProcFS
	read := map[string]bool{}
	err := proc.EachFD(procfs, owner, func(fd int, target string) bool {
		if strings.HasPrefix(target, "pipe:") && proc.ReadFDInfo(procfs, owner, fd).ReadOnly() {
			read[target] = true
		}
		return true
	})
	if err != nil {
		return unproved(err)
	}
	keeps := false
	err = proc.EachFD(procfs, pid, func(fd int, target string) bool {
		keeps = read[target] && !proc.ReadFDInfo(procfs, pid, fd).ReadOnly()
		return !keeps
	})
	switch {
	case err != nil:
		return unproved(err)
	case !keeps:
		return refused("it keeps no pipe open that its parent reads: it was left by another process")
	}
	return Answer{}
}

// Orphan answers whether a process is an OCI runtime whose parent has ended: root's, on the
// node's own file systems.
func (m *Members) Orphan(ctx context.Context, p proc.Process) Answer {
	if !IsOCI(p) {
		return refused("%q is not the name of an OCI runtime", p.Comm)
	}
	return m.prove(ctx, p, 1, helper, belongs)
}

// prove returns the answer for a process and its owner, and keeps it unless a proof could not be read.
// Pid 1 stands for an owner that is not known or has ended.
func (m *Members) prove(ctx context.Context, p proc.Process, owner int, role string,
	ask func(p, owner proc.Identity) Answer) Answer {
	question := claim{process: p.ID(), comm: p.Comm, role: role, owner: owner}
	answer, found := m.answers[question]
	if found {
		return answer
	}
	uid := proc.OwnerOf(m.table.ProcFS, p.PID)
	if uid != 0 && uid != proc.OwnerOf(m.table.ProcFS, owner) {
		return refused("it runs as uid %d", uid) // not worth a place: there may be thousands
	}
	if role == helper && m.hasOwnMounts(p.PID, owner) {
		m.keep(question, otherMounts)
		return otherMounts
	}
	id, err := m.table.Identify(ctx, p.PID)
	if err != nil {
		return unproved(err)
	}
	ownerID, err := m.table.Identify(ctx, max(owner, 1))
	if err != nil {
		ownerID, err = m.table.Identify(ctx, 1)
	}
	if err != nil {
		return unproved(err)
	}
	answer = ask(id, ownerID)
	if answer.Err == nil {
		m.keep(question, answer)
	}
	return answer
}

// keep keeps an answer.
func (m *Members) keep(question claim, answer Answer) {
	if len(m.answers) >= maxClaims {
		clear(m.answers)
	}
	m.answers[question] = answer
}

// Shim answers whether a process is a shim or conmon of the runtime: it has the runtime's user,
// root outside of tests, and is in its user and pid namespace. Its name and its parent are known.
func Shim(p, runtime proc.Identity) Answer {
	if answer := sameUser(p, runtime); !answer.Proven() {
		return answer
	}
	if differ(p.UserNS, runtime.UserNS) {
		return refused("it is in another user namespace than the runtime")
	}
	if differ(p.PIDNS, runtime.PIDNS) || p.PIDDepth != runtime.PIDDepth {
		return refused("it is in another pid namespace than the runtime")
	}
	return Answer{Unproven: unproven(p, proc.ProofUserNS, proc.ProofPIDNS)}
}

func sameUser(p, runtime proc.Identity) Answer {
	if err := p.Unread[proc.ProofUser]; err != nil {
		return unproved(err)
	}
	if !slices.Equal(p.UIDs, runtime.UIDs) {
		return refused("it runs as uid %d, and the runtime does not", lowestUser(p.UIDs))
	}
	return Answer{}
}

// Hop answers whether a process is the daemon that it is named after, behind its owner: of the same
// user and namespaces, but for the first one, as a node in a container has its own; of the executable
// of that name on the node's file systems, and in no container. The executable and its mounts are done
// without where the kernel denies them.
func Hop(p, owner proc.Identity) Answer {
	prove := Shim
	if owner.PID == 1 {
		prove = sameUser
	}
	answer := prove(p, owner)
	if !answer.Proven() {
		return answer
	}
	err := p.Unread[proc.ProofCgroup]
	if err != nil && proc.OutcomeOf(err) != proc.Absent {
		return unproved(err)
	}
	if cgroup, found := containerCgroup(p.Cgroups, owner.Cgroups); found {
		return refused("its cgroup %s is a container's", cgroup)
	}
	if p.Exe != "" && programOf(p) != p.Comm {
		return refused("its executable is %s", p.Exe)
	}
	if differ(p.MountNS, owner.MountNS) && !p.ExeOnNode {
		return refused("its executable %s is not on the node's file systems", p.Exe)
	}
	answer.Unproven = append(answer.Unproven, unproven(p, proc.ProofExe, proc.ProofMountNS)...)
	return answer
}

// otherMounts refuses a container's own process.
var otherMounts = refused("it is in another mount namespace than its parent")

// belongs answers whether a process is of the same user and in the same namespaces as its owner,
// and no container's own process: without the mount namespace its cgroup shows that.
func belongs(p, owner proc.Identity) Answer {
	answer := Shim(p, owner)
	if !answer.Proven() {
		return answer
	}
	if p.MountNS != "" && owner.MountNS != "" {
		if p.MountNS != owner.MountNS {
			return otherMounts
		}
		return answer
	}
	err := p.Unread[proc.ProofCgroup]
	if err != nil && proc.OutcomeOf(err) != proc.Absent {
		return unproved(err)
	}
	if cgroup, found := containerCgroup(p.Cgroups, owner.Cgroups); found {
		return refused("its cgroup %s is a container's", cgroup)
	}
	return answer
}
