package chain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// busNames are the sockets by which runc asks systemd for a cgroup.
var busNames = []string{"/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket", "/run/systemd/private"}

// answers adds the process whose answer a helper waits for, where no thread shows it: a
// program in Go waits in epoll(7), and the peer may have read the request. It is the one
// at the other end of its only connection, else one that stands still; behind the system
// bus that may be systemd.
func (f *waiting) answers(ctx context.Context) {
	if f.pid == f.symptom.DaemonPID {
		f.requestsOf(ctx)
		return
	}
	if f.symptom.Starts && f.pid == f.symptom.Process {
		f.serversOfStarts(ctx)
		return
	}
	if f.kindOf(ctx, f.last.threads[f.pid].Process) != facts.KindHelper {
		return
	}
	names, remote := f.servers(ctx)
	if len(names)+len(remote) == 0 || len(f.doubts) > 0 { // one of its threads reads from such an end
		f.privateAnswers(ctx)
	}
	if len(f.found) == 0 {
		f.namedAnswers(ctx, names, remote)
	}
}

// namedAnswers adds the process at the other end of the only connection to a server, else one that stands still, or is held
// up itself.
func (f *waiting) namedAnswers(ctx context.Context, names map[int]string, remote []string) {
	isFew := len(names) <= maxServers
	all := f.processes(ctx)
	for _, pid := range slices.Sorted(maps.Keys(names)) {
		isOnly := len(names) == 1 && pid != 0
		if isOnly || f.standsStill(ctx, pid) || isFew && f.isHeldUp(ctx, all.ByPID[pid]) {
			evidence := "waits for nothing else, and has " + names[pid]
			f.add(wait{state: facts.LinkPeer, next: pid, evidence: evidence})
		}
	}
	if len(names) == 0 && len(remote) == 1 {
		f.add(wait{
			key: remote[0], state: facts.LinkPeer,
			evidence: "waits for nothing else, and has a connection to " + remote[0],
			link:     serverElsewhere(remote[0], "its end is not seen on this node"),
		})
	}
}

// maxServers bounds the servers of a runtime that are looked at.
const maxServers = 4

// serversOfStarts adds the server, as a snapshotter, for whose answer a runtime waits that does not end the starts of pods:
// one that stands still, or waits for a lock or a file system itself. Of another one, which may have read the request, that
// cannot be seen.
func (f *waiting) serversOfStarts(ctx context.Context) {
	names, _ := f.requests()
	servers := map[int]string{} // the names of their sockets
	_, err := proc.Holders(ctx, f.procfs, func(pid, _ int, leads string) bool {
		if names[leads] != "" && pid != 1 && pid != f.pid {
			servers[pid] = names[leads]
		}
		return false
	})
	f.unseenIf("the descriptors of other processes", err)
	all := f.processes(ctx)
	maps.DeleteFunc(servers, func(pid int, _ string) bool { return f.isShim(ctx, all.ByPID[pid]) })
	var texts []string
	pids := slices.Sorted(maps.Keys(servers))
	for _, pid := range pids[:min(len(pids), maxServers)] {
		if f.isHeldUp(ctx, all.ByPID[pid]) {
			f.add(wait{state: facts.LinkPeer, next: pid, evidence: "does not end the starts of pods, and is a client of socket " + servers[pid]})
			return
		}
		texts = append(texts, fmt.Sprintf("pid %d (%s) at socket %s", pid, all.ByPID[pid].Comm, servers[pid]))
	}
	if len(texts) > 0 {
		f.add(unclear(f.asleepText(), "it may wait for an answer of %s, which cannot be seen", strings.Join(texts, " or of ")))
	}
}

// isHeldUp reports whether a process stands still, or waits for the same lock, file system, answer to a connection or process
// that stands still at two times. It is false within another such look.
func (f *waiting) isHeldUp(ctx context.Context, p proc.Process) bool {
	if p.PID == 0 || f.peeks {
		return false
	}
	f.peeks = true
	defer func() { f.peeks = false }()
	first := f.waitOf(ctx, p)
	isHeld := first.connects || first.state.StandsStill() || first.next != 0 && f.standsStill(ctx, first.next)
	return isHeld && f.waitOf(ctx, p).evidence == first.evidence
}

// serversLimit limits the time for the servers of one process.
const serversLimit = 2 * time.Second

// heldUpServer is the wait of a process for the only one of its few servers that is held up itself; ok is false where none
// or several are: a connection may be idle.
func (f *waiting) heldUpServer(ctx context.Context) (out wait, ok bool) {
	if f.peeks || f.isRuntime() {
		return wait{}, false
	}
	limited, cancel := context.WithTimeout(ctx, serversLimit)
	defer cancel()
	servers := f.serversOf(limited)
	if len(servers) > maxServers {
		return wait{}, false
	}
	all := f.processes(limited)
	held := 0
	for pid, name := range servers {
		if f.isHeldUp(limited, all.ByPID[pid]) {
			held++
			evidence := "waits for nothing else, and has a connection to socket " + name + ", whose server is held up"
			out = wait{state: facts.LinkPeer, next: pid, evidence: evidence}
		}
	}
	return out, held == 1 && limited.Err() == nil
}

// serversOf returns the names of the sockets to which the process is connected, by the process that alone has the other end;
// none where not all that may have it can be read.
func (f *waiting) serversOf(ctx context.Context) map[int]string {
	f.locate(ctx)
	names, _ := f.requests()
	if len(names) == 0 {
		return nil
	}
	holders := map[string][]int{}
	_, err := proc.Holders(ctx, f.procfs, func(pid, _ int, leads string) bool {
		if names[leads] != "" && !slices.Contains(holders[leads], pid) {
			holders[leads] = append(holders[leads], pid)
		}
		return false
	})
	if err != nil {
		return nil
	}
	servers := map[int]string{}
	for _, leads := range slices.Sorted(maps.Keys(holders)) {
		named := f.holdersToName(ctx, holders[leads])
		if len(named) == 1 && named[0] != f.symptom.RuntimePID && named[0] != f.symptom.DaemonPID {
			servers[named[0]] = names[leads]
		}
	}
	return servers
}

// maxIdle is how many connections to one server a client of Go's net/http keeps without a request
// (DefaultMaxIdleConnsPerHost).
const maxIdle = 2

// requestsOf adds the process that leaves requests of the daemon unanswered, as a plugin that reads and
// does not answer: to it alone the daemon has more connections than it keeps without a request, and has
// opened one since calls hang.
func (f *waiting) requestsOf(ctx context.Context) {
	names, isNew := f.requests()
	if len(names) == 0 || f.opened == nil {
		return
	}
	counts := map[int]int{}
	opened := map[int]string{} // the name of one that has been opened since, by process
	_, err := proc.Holders(ctx, f.procfs, func(pid, _ int, leads string) bool {
		if names[leads] != "" && pid != 1 {
			counts[pid]++
		}
		if isNew[leads] && pid != 1 {
			opened[pid] = names[leads]
		}
		return false
	})
	f.unseenIf("the descriptors of other processes", err)
	for pid, name := range opened {
		if counts[pid] > maxIdle {
			f.add(wait{state: facts.LinkUnanswered, next: pid, evidence: fmt.Sprintf(
				"has %d connections to socket %s, some opened since calls hang: its requests there are not answered", counts[pid], name)})
		}
	}
}

// requests returns the connections on which the daemon may have sent a request, by the link to the server's
// end: the names of the servers' sockets, and which have been opened since calls hang.
func (f *waiting) requests() (names map[string]string, isNew map[string]bool) {
	names = map[string]string{}
	isNew = map[string]bool{}
	for inode, c := range f.last.sockets {
		first := f.first.sockets[inode]
		isSame := first.peer == c.peer || c.ends.local.IsValid() // its other end may have been found since
		lasts := c.peer != 0 && isSame && first.ends == c.ends
		isClient := !c.server && !c.remote && c.name != "" && !proc.IsLogSocket(c.name)
		if lasts && isClient {
			names[socketLink(c.peer)] = c.name
			isNew[socketLink(c.peer)] = !f.opened[inode]
		}
	}
	return names, isNew
}

// privateAnswers adds the process that has the other end of the pipes which a helper reads, and of its sockets without a
// name, if there is only one and the helper does not descend from it.
func (f *waiting) privateAnswers(ctx context.Context) {
	read := map[string]bool{} // by the link to the other end
	for _, c := range f.last.sockets {
		if c.name == "" && c.peer != 0 {
			read[socketLink(c.peer)] = true
		}
	}
	isReadEnd := otherEnd(true)
	err := proc.EachFD(f.procfs, f.pid, func(fd int, leads string) bool {
		if strings.HasPrefix(leads, "pipe:[") && isReadEnd(proc.ReadFDInfo(f.procfs, f.pid, fd)) {
			read[leads] = true
		}
		return true
	})
	f.unseenIf("its descriptors", err)
	if len(read) == 0 {
		return
	}
	isWriteEnd := otherEnd(false)
	writers, err := proc.Holders(ctx, f.procfs, func(pid, fd int, leads string) bool {
		_, isSocket := proc.SocketInode(leads)
		return read[leads] && (isSocket || isWriteEnd(proc.ReadFDInfo(f.procfs, pid, fd)))
	})
	if len(writers) == 0 {
		f.unseenIf("the descriptors of other processes", err)
	}
	ancestors := f.processes(ctx).Ancestors(f.pid)
	named := f.holdersToName(ctx, without(writers, func(pid int) bool { return slices.Contains(ancestors, pid) }))
	if len(named) != 1 {
		return
	}
	ends := strings.Join(slices.Sorted(maps.Keys(read)), ", ")
	f.add(wait{
		state: facts.LinkPeer, next: named[0],
		evidence: "waits for nothing else, and reads from " + ends + ", which another process keeps open",
	})
}

// servers returns the processes at the other end of the process's connections, and those of which it has a pidfd, with
// that, and the connections to other nodes.
func (f *waiting) servers(ctx context.Context) (names map[int]string, remote []string) {
	names = map[int]string{}
	for _, inode := range slices.Sorted(maps.Keys(f.last.sockets)) {
		c := f.last.sockets[inode]
		switch {
		case proc.IsLogSocket(c.name) || c.server || c.name == "":
		case c.remote:
			remote = append(remote, c.text())
		case c.peer != 0:
			names[f.heldBy(ctx, wait{}, "", leadsTo(socketLink(c.peer)), nil).next] = "a connection to " + c.text()
		}
		if c.peer != 0 && slices.Contains(busNames, c.name) {
			names[1] = "a connection to " + c.text()
		}
	}
	f.pidfds(names)
	return names, remote
}

// pidfds adds the processes whose end may be waited for: those of which the process has a pidfd.
func (f *waiting) pidfds(names map[int]string) {
	err := proc.EachFD(f.procfs, f.pid, func(fd int, leads string) bool {
		if leads != "anon_inode:[pidfd]" {
			return true
		}
		pid := proc.ReadFDInfo(f.procfs, f.pid, fd).PID
		if pid > 0 && pid != f.pid { // -1 has ended
			names[pid] = fmt.Sprintf("a pidfd of pid %d, whose end it may wait for", pid)
		}
		return true
	})
	f.unseenIf("its descriptors", err)
}

// standsStill reports whether a process is stopped, traced or frozen, or its first thread
// in D.
func (f *waiting) standsStill(ctx context.Context, pid int) bool {
	server, ok := f.look(ctx, pid)
	if !ok {
		return false
	}
	_, held := server.held()
	return held || slices.ContainsFunc(server.unmoved(), func(t thread) bool { return t.PID == pid && t.State == 'D' })
}
