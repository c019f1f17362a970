package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/wchan"
)

const (
	// statTimeout limits the wait for a file system that is asked for its state, maxHung the number of such questions that
	// hang.
	statTimeout = 200 * time.Millisecond
	maxHung     = 8
	// remounted is the time within which a server that restarts mounts again.
	remounted = SuspectInterval
	// autofs is the type of a directory in which a daemon mounts file systems on demand: a question would mount one.
	autofs = "autofs"
)

// goneErrors are the errors with which a file system answers at once whose server is gone.
var goneErrors = []error{unix.ENOTCONN, unix.ECONNABORTED, unix.ESHUTDOWN, unix.ESTALE, unix.EIO}

// serverMounts are the mounts of the runtime whose file systems have a server.
type serverMounts struct {
	due   time.Time                                  // when they are looked at again
	slots map[string]*bounded.Slot[facts.FileSystem] // of the questions to file systems, by devices
	dead  []deadMount                                // that pods use, in the order of the mount table
}

// deadMount is a mount whose server is gone.
type deadMount struct {
	device string
	since  time.Time
	link   facts.Link
}

// deadMounts looks for the mounts whose server is gone and that a pod uses: no container with such a volume can be started,
// and nothing of that is listed. While there is one, each pass looks.
func (p *pass) deadMounts(ctx context.Context) {
	m := &p.mounted
	isDue := !p.moment.Before(m.due) || p.CreatesFail()
	if !isDue || p.runtime().PID == 0 || p.listed == nil {
		return
	}
	m.due = p.moment.Add(againAfter)
	mounts, err := p.Table.Mounts(ctx, p.runtime().PID)
	p.unread.Add(mountTable, err)
	m.look(ctx, p, mounts)
	if len(m.dead) > 0 {
		m.due = p.moment
	}
}

// look asks each file system that has a server, once for each device, and keeps those that are dead and used.
func (m *serverMounts) look(ctx context.Context, p *pass, mounts []proc.Mount) {
	earlier := m.dead
	m.dead = nil
	asked := map[string]error{} // by devices
	for _, mount := range mounts {
		if !wchan.HasServer(mount.Type) || mount.Type == autofs {
			continue
		}
		err, isAsked := asked[mount.Device]
		if !isAsked {
			_, err = m.ask(ctx, p, mount)
			asked[mount.Device] = err
		}
		if isGone(err) {
			m.add(earlier, p.moment, mount, err, p.userOf(ctx, mount))
		}
	}
	maps.DeleteFunc(m.slots, func(device string, slot *bounded.Slot[facts.FileSystem]) bool {
		_, isAsked := asked[device]
		return !isAsked && !slot.Busy()
	})
}

// add adds a dead mount, once for each device, with the age that it has.
func (m *serverMounts) add(earlier []deadMount, moment time.Time, mount proc.Mount, err error, user *cri.Entry) {
	isSame := func(d deadMount) bool { return d.device == mount.Device }
	if user == nil || slices.ContainsFunc(m.dead, isSame) {
		return
	}
	since := moment
	if i := slices.IndexFunc(earlier, isSame); i >= 0 {
		since = earlier[i].since
	}
	link := deadLink(mount, err)
	link.RuntimeID = user.ID
	link.Pod = user.Pod()
	link.Since = since
	m.dead = append(m.dead, deadMount{device: mount.Device, since: since, link: link})
}

// deadLink is a mount whose server is gone, by the error with which it answers.
func deadLink(mount proc.Mount, err error) facts.Link {
	var errno unix.Errno
	_ = errors.As(err, &errno)
	return facts.Link{
		Kind: facts.KindMount, Name: mount.Point, State: facts.LinkEnded, Fingerprint: facts.FingerprintWord(mount.Type),
		Evidence: fmt.Sprintf("%s on %s (%s): its server is gone (%s), and no container with it can be started",
			mount.Type, mount.Source, mount.Device, errno.Error()),
	}
}

// deadMountFinding returns the finding of the mount that has been dead for longest, none for one that may just be mounted
// again.
func (p *pass) deadMountFinding() []facts.Finding {
	if len(p.mounted.dead) == 0 {
		return nil
	}
	oldest := slices.MinFunc(p.mounted.dead, func(a, b deadMount) int { return a.since.Compare(b.since) })
	if p.moment.Sub(oldest.since) < remounted {
		return nil
	}
	c := facts.Chain{At: time.Now(), Links: []facts.Link{oldest.link}}
	return []facts.Finding{{Reason: podStartsFailing, Since: oldest.since, Chain: c}}
}

// isNew reports whether a dead mount is not yet old enough to be a finding.
func (m *serverMounts) isNew(moment time.Time) bool {
	return slices.ContainsFunc(m.dead, func(d deadMount) bool { return moment.Sub(d.since) < remounted })
}

// userOf returns a running sandbox that uses a mount, nil where none is known: its pod has the mount in its directory, which
// has the pod's UID in its path, or a container has the file system in its mounts.
func (p *pass) userOf(ctx context.Context, mount proc.Mount) *cri.Entry {
	names := strings.Split(mount.Point, "/")
	for _, entry := range p.listed {
		isRunning := entry.Sandbox && entry.State == cri.StateRunning
		if isRunning && entry.PodUID != "" && slices.Contains(names, entry.PodUID) {
			return entry
		}
	}
	return p.sandboxOn(ctx, mount.Device)
}

// sandboxOn returns the sandbox of a container that has a file system in its mounts, nil where none is known.
func (p *pass) sandboxOn(ctx context.Context, device string) *cri.Entry {
	all := p.readProcesses(ctx, tableAge)
	if all == nil {
		return nil
	}
	for _, shim := range p.shims {
		for _, process := range all.Children(shim.PID) {
			mounts, err := p.Table.Mounts(ctx, process.PID)
			p.unread.Add(mountTable, err)
			isUsed := slices.ContainsFunc(mounts, func(m proc.Mount) bool { return m.Device == device })
			if isUsed && p.served[shim.ID()].entry != nil {
				return p.served[shim.ID()].entry
			}
		}
	}
	return nil
}

// lacking returns the mount of a path if its server is gone or its file system lacks something, else nil.
func (m *serverMounts) lacking(ctx context.Context, p *pass, mounts []proc.Mount, place string) *facts.Link {
	mount, found := proc.MountOf(mounts, place)
	if !found || mount.Type == autofs {
		return nil
	}
	f, err := m.ask(ctx, p, mount)
	if isGone(err) {
		link := deadLink(mount, err)
		return &link
	}
	if err != nil || !f.Lacks(facts.StorageStill) {
		return nil
	}
	return &facts.Link{
		Kind: facts.KindMount, Name: mount.Point, State: facts.LinkFailing, Fingerprint: facts.FingerprintWord(mount.Type),
		Evidence: strings.TrimSpace(f.String()),
	}
}

// ask asks the file system of a mount for its state. A question that hangs is not repeated.
func (m *serverMounts) ask(ctx context.Context, p *pass, mount proc.Mount) (facts.FileSystem, error) {
	if m.slots == nil {
		m.slots = map[string]*bounded.Slot[facts.FileSystem]{}
	}
	hung := 0
	for _, slot := range m.slots {
		if slot.Busy() {
			hung++
		}
	}
	if hung >= maxHung {
		return facts.FileSystem{}, bounded.ErrBusy
	}
	slot := m.slots[mount.Device]
	if slot == nil {
		slot = &bounded.Slot[facts.FileSystem]{}
		m.slots[mount.Device] = slot
	}
	place := proc.Path(p.Table.ProcFS, p.pids[0], "root") + mount.Point
	f, err := slot.Do(ctx, statTimeout, func(context.Context) (facts.FileSystem, error) { return p.StatFS(place) })
	f.Directory = mount.Point
	f.Device = mount.Source
	f.Type = mount.Type
	if errors.Is(err, fs.ErrPermission) {
		p.unread.Add(mountTable, err)
	}
	return f, err
}

// statFS returns the state of the file system at a path.
func statFS(place string) (facts.FileSystem, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(place, &st); err != nil {
		return facts.FileSystem{}, &fs.PathError{Op: "statfs", Path: place, Err: err}
	}
	return facts.FileSystem{
		Bytes:      int64(st.Blocks) * st.Bsize, //nolint:gosec // < 2^63
		FreeBytes:  int64(st.Bfree) * st.Bsize,  //nolint:gosec // likewise
		Inodes:     int64(st.Files),             //nolint:gosec // likewise
		FreeInodes: int64(st.Ffree),             //nolint:gosec // likewise
		ReadOnly:   st.Flags&unix.ST_RDONLY != 0,
	}, nil
}

// isGone reports whether a file system has answered that its server is gone.
func isGone(err error) bool {
	return slices.ContainsFunc(goneErrors, func(gone error) bool { return errors.Is(err, gone) })
}
