package evidence

import (
	"cmp"
	"context"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/wchan"
)

// storageMarks are parts of the paths of a runtime's open files and mounts. What stands
// before one is a directory of the runtime, independent of its configuration.
var storageMarks = []struct{ comm, mark, use string }{
	{"containerd", "/io.containerd.metadata.v1.bolt/", "root"},
	{"containerd", "/io.containerd.runtime.v2.task/", "state"},
	{"dockerd", "/volumes/metadata.db", "root"},
	{"crio", "/overlay-containers/", "state"},
	{"crio", "/overlay/", "root"}, // the directory itself is a mount, too
}

// storageArg is an argument with which a process names a directory, or a file, to which it writes.
type storageArg struct {
	comm, flag string
	otherwise  string // where the flag is not given; "" for nothing
	use        string
	isFile     bool
}

var storageArgs = []storageArg{
	{comm: "cri-dockerd", flag: "cri-dockerd-root-directory", otherwise: "/var/lib/cri-dockerd", use: "root"},
	{comm: "cri-dockerd", flag: "cni-cache-dir", otherwise: "/var/lib/cni/cache", use: "networks"},
	{comm: "cri-dockerd", otherwise: podLogs, use: "logs"},
	{comm: "dockerd", flag: "exec-root", otherwise: "/run/docker", use: "state"},
	{comm: "containerd", otherwise: networks, use: "networks"},
	{comm: "containerd", otherwise: podLogs, use: "logs"},
	{comm: "containerd", otherwise: namespaces, use: "namespaces"},
	{comm: "containerd", otherwise: containerd, use: "state"},
	{comm: "crio", otherwise: networks, use: "networks"},
	{comm: "crio", otherwise: namespaces, use: "namespaces"},
	{comm: "conmon", flag: "exit-dir", use: "exits"},
	{comm: "conmon", flag: "socket-dir-path", use: "attach"},
	{comm: "conmon", flag: "p", use: "state", isFile: true},
	{comm: "conmon", flag: "l", use: "logs", isFile: true},
}

const (
	networks = "/var/lib/cni"  // where libcni and its plugins keep their state
	podLogs  = "/var/log/pods" // the kubelet's default
	// namespaces is where namespaces are kept as files, containerd where its shims have sockets and runc
	// keeps its state, wherever containerd's own is.
	namespaces = "/run/netns"
	containerd = "/run/containerd"
	// maxDirs bounds the directories that are found by arguments, open files and namespaces.
	maxDirs = 16
	// standardFDs are the descriptors that a process is started with.
	standardFDs = 3
)

// search finds the directories to which a process writes. Of those that were known before, a lost one is kept: its
// path is where the process looks for it.
func (s *storage) search(ctx context.Context, pid int, known []storageDir) {
	p, err := s.table.Alive(pid)
	if err != nil {
		return
	}
	mounts, err := s.table.Mounts(ctx, pid)
	s.searchUnread.Add("mount table", err)
	s.mounts = max(s.mounts, len(mounts))
	w := &writer{storage: s, process: p, mounts: mounts, seen: map[string]bool{}, named: map[string]bool{}}
	for _, d := range known {
		if d.pid == pid && s.isLost(ctx, d) {
			w.dirs = append(w.dirs, d)
		}
	}
	for _, m := range mounts {
		w.recognize(m.Point+"/", 0)
	}
	open := map[string]int{} // files, with a descriptor
	err = proc.EachFD(s.procfs, pid, func(fd int, target string) bool {
		w.recognize(target, fd)
		if fd >= standardFDs && path.IsAbs(target) && !strings.HasPrefix(target, "/dev/") {
			open[target] = fd
		}
		return ctx.Err() == nil
	})
	s.searchUnread.Add("descriptors", err)
	w.readArgs(p)
	w.readConmons(ctx)
	w.readNamespaces()
	w.readFiles(open)
	w.readMounts()
}

// writer is the search for the directories of one process, as it sees them.
type writer struct {
	*storage

	process proc.Process
	mounts  []proc.Mount
	seen    map[string]bool // paths that have been added, or are not to be
	named   map[string]bool // directories of the process, by its files and arguments
}

// recognize adds the directory in which a path shows the process to keep its data: that of a mount, or of a file that
// it has open.
func (w *writer) recognize(place string, fd int) {
	for _, m := range storageMarks {
		dir, _, found := strings.Cut(place, m.mark)
		known := slices.ContainsFunc(w.dirs, func(d storageDir) bool { return d.Directory == dir })
		if m.comm == w.process.Comm && found && !known && strings.HasPrefix(dir, "/") {
			d := w.dirOn(w.mounts, dir, m.use, w.process.PID)
			d.shownBy(w.procfs, place, fd)
			w.dirs = append(w.dirs, d)
			w.named[dir] = true
		}
	}
}

// shownBy keeps what showed the directory: an open database, or a mount. If that is no longer at its path, the directory is
// lost. A mount that is hidden already was hidden when the process started: that is PodsLost.
func (d *storageDir) shownBy(procfs, place string, fd int) {
	file := proc.WithoutDeleted(place)
	switch {
	case strings.HasSuffix(file, ".db"):
		d.database = file
		d.fd = fd
	case strings.HasSuffix(place, "/") && d.sees(procfs, strings.TrimSuffix(place, "/")):
		d.mounted = strings.TrimSuffix(place, "/")
	}
}

// readArgs adds the directories that the process, or its conmon, names in its arguments.
func (w *writer) readArgs(p proc.Process) {
	for _, a := range storageArgs {
		if a.comm != p.Comm {
			continue
		}
		place := a.otherwise
		if a.flag != "" {
			place = cmp.Or(proc.ArgValue(w.table.Args(p.ID()), a.flag), a.otherwise)
		}
		place = family.RunPath(place)
		w.named[place] = !a.isFile
		m, found := w.unknownMount(place)
		if found && a.isFile {
			place = m.Point
		}
		if found {
			w.add(place, a.use)
		}
	}
}

// readConmons adds the directories that CRI-O's conmons name.
func (w *writer) readConmons(ctx context.Context) {
	if w.process.Comm != "crio" {
		return
	}
	all, err := w.table.Processes(ctx, storageInterval)
	w.searchUnread.Add("processes", err)
	if err != nil {
		return
	}
	noteIdentity := func(err error) { w.searchUnread.Add("identities of shims", err) }
	for _, conmon := range w.members.Shims(ctx, all, w.process.PID, w.sockets(), noteIdentity) {
		w.readArgs(conmon)
	}
}

// readNamespaces adds the directories in which namespaces are kept as files.
func (w *writer) readNamespaces() {
	for _, m := range w.mounts {
		dir := path.Dir(m.Point)
		if m.Type != "nsfs" {
			continue
		}
		if _, found := w.unknownMount(dir); found {
			w.add(dir, "namespaces")
		}
	}
}

// readFiles adds the file systems of the files that the process has open for writing.
func (w *writer) readFiles(open map[string]int) {
	for _, file := range slices.Sorted(maps.Keys(open)) {
		m, found := w.unknownMount(file)
		if found && !proc.ReadFDInfo(w.procfs, w.process.PID, open[file]).ReadOnly() {
			w.add(m.Point, "open files")
		}
	}
}

// readMounts adds the file systems that are mounted directly below the process's own directories.
func (w *writer) readMounts() {
	for _, m := range w.mounts {
		if m.Type == "nsfs" || !w.named[path.Dir(m.Point)] {
			continue
		}
		if _, found := w.unknownMount(m.Point); found {
			w.add(m.Point, "directory")
		}
	}
}

// unknownMount returns the mount that a path lies on, if its file system is not among those that are
// known and has no server, which may hang.
func (w *writer) unknownMount(place string) (m proc.Mount, found bool) {
	if !path.IsAbs(place) || w.seen[place] || len(w.dirs) >= maxDirs {
		return m, false
	}
	w.seen[place] = true
	m, found = proc.MountOf(w.mounts, place)
	known := slices.ContainsFunc(w.dirs, func(d storageDir) bool { return d.mount == mountKey(m) })
	return m, found && !known && !wchan.HasServer(m.Type)
}

// add adds a directory that is there and whose file system has a size.
func (w *writer) add(dir, use string) {
	d := w.dirOn(w.mounts, dir, use, w.process.PID)
	f, err := d.stat(w.procfs, w.files)
	if !proc.Gone(err) && (err != nil || f.Bytes > 0) {
		w.dirs = append(w.dirs, d)
	}
}

// disksOf returns the block devices that carry a file system, as the kernel names them: its own, the disk that this
// is a part of, and those below a mapped device.
func disksOf(sysfs, device, source string) []string {
	if device == "" {
		device = oneOfSeveral(source)
	}
	if device == "" {
		return nil
	}
	const maxDisks = 8
	out := []string{device}
	for i := 0; i < len(out) && len(out) < maxDisks; i++ {
		link, err := proc.Link(filepath.Join(sysfs, "class/block", out[i]))
		parent := filepath.Base(filepath.Dir(link))
		if err == nil && parent != "block" {
			out = append(out, parent)
		}
		below, _ := proc.Names(filepath.Join(sysfs, "class/block", out[i], "slaves"), maxDisks) // of a part there is no such directory
		out = append(out, below...)
	}
	return out
}

// oneOfSeveral returns the block device that a mount's source names, "" for none: a file system with several devices
// has a number of its own, to which no device belongs.
func oneOfSeveral(source string) string {
	name, isPath := strings.CutPrefix(source, "/dev/")
	if !isPath || strings.Contains(name, "/") {
		return ""
	}
	return name
}
