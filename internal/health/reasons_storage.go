package health

import (
	"fmt"
	"slices"
)

const (
	// storageBytes is the free space below which a file system counts as full,
	// storageInodes the free inodes below which it has none left: a pod takes about
	// 20. It ends above storageStill times as much.
	storageBytes  = 1 << 20
	storageInodes = 32
	storageStill  = 2
)

// Unwritable reports whether a file system is full, out of inodes or read-only.
func (s *Storage) Unwritable() bool {
	return slices.ContainsFunc(s.FileSystems, func(f FileSystem) bool { return f.lacks(1) != "" })
}

// What a file system lacks.
const (
	lacksBytes  = "bytes"
	lacksInodes = "inodes"
	lacksWrites = "writes"
)

// lacks returns what the file system lacks, "" for nothing; times is how many times
// the limits it must have.
func (f *FileSystem) lacks(times int64) string {
	switch {
	case f.ReadOnly:
		return lacksWrites
	case f.Bytes > 0 && f.FreeBytes < times*storageBytes:
		return lacksBytes
	case f.Inodes > 0 && f.FreeInodes < times*storageInodes:
		return lacksInodes
	}
	return ""
}

// String returns the file system's state in words.
func (f *FileSystem) String() string {
	what := fmt.Sprintf("%s of %s free", sizeText(f.FreeBytes), sizeText(f.Bytes))
	switch {
	case f.Option == "emergency_ro":
		what = "read-only since an error of the file system (emergency_ro)"
	case f.ReadOnly:
		what = "read-only"
	case f.lacks(storageStill) == lacksInodes:
		what = fmt.Sprintf("%d of %d inodes free", f.FreeInodes, f.Inodes)
	}
	return fmt.Sprintf("%s %s: %s (%s)", f.Use, f.Directory, what, f.device())
}

// device is the file system's type and where it is from.
func (f *FileSystem) device() string {
	if f.Type == f.Device || f.Device == "" {
		return f.Type
	}
	return f.Type + " on " + f.Device
}

// storageLacking returns the file systems that keep the runtime from writing.
func (w *view) storageLacking() (out []FileSystem) {
	if s := w.f.Evidence.Storage; s != nil {
		times := int64(w.band(RuntimeStorageFull, 1, storageStill))
		for _, f := range s.FileSystems {
			if f.lacks(times) != "" {
				out = append(out, f)
			}
		}
	}
	return out
}

// storageReasons speak of what the runtime writes to.
var storageReasons = []Reason{
	{
		ID: RuntimeStorageFull, Layer: LayerProcess, Severity: SeverityWarning, criticalWhile: (*view).relistSuffers,
		match: storageFull,
		next:  storageNext,
	},
}

func storageFull(w *view) (out []string) {
	for _, f := range w.storageLacking() {
		out = append(out, f.String())
	}
	return out
}

func storageNext(w *view) string {
	lacking := w.storageLacking()
	if len(lacking) == 0 {
		return ""
	}
	f := &lacking[0]
	switch f.lacks(storageStill) {
	case lacksWrites:
		return fmt.Sprintf("Find out why %s (%s) is read-only, drain the node and repair the file system; a runtime that "+
			"is restarted now does not start.", f.Directory, f.device())
	case lacksInodes:
		return fmt.Sprintf("Remove exited containers and unused images, or other small files: %s (%s) "+
			"has %d of %d inodes free.", f.Directory, f.device(), f.FreeInodes, f.Inodes)
	}
	return fmt.Sprintf("Free space on %s (%s, %s of %s free) other than through the runtime, and do not restart the "+
		"runtime before that: it would lose the running containers from its lists.", f.Directory, f.device(),
		sizeText(f.FreeBytes), sizeText(f.Bytes))
}

func sizeText(n int64) string {
	switch {
	case n < 1<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	case n < 10<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
