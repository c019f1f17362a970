package facts

import "fmt"

// The free space and inodes below which a file system counts as full: the smaller of a number and a share, and at least a
// number for a small file system, as a tmpfs is.
const (
	FullBytes     = 64 << 20 // an image layer or the log of a pod no longer fits
	FullShare     = 100      // one part in so many
	MinFullBytes  = 1 << 20
	FullInodes    = 1000 // a pod takes about 20, and a layer of an image thousands
	MinFullInodes = 32
	// StorageStill is the multiple of these limits above which a full file system counts as free again.
	StorageStill = 2
)

// Unwritable reports whether a file system is full, out of inodes, read-only or lost.
func (s *Storage) Unwritable() bool { return s.Lacking(1) != nil }

// Lacking returns the first file system that lacks something of so many times the limits, nil for none.
func (s *Storage) Lacking(times int64) *FileSystem {
	for i := range s.FileSystems {
		if f := &s.FileSystems[i]; f.Lacks(times) {
			return f
		}
	}
	return nil
}

// Lacks reports whether it is read-only or lost, or has less free space or inodes than so many times the limits.
func (f *FileSystem) Lacks(times int64) bool {
	return f.ReadOnly || f.Lost || f.LacksSpace(times) || f.LacksInodes(times)
}

// LacksSpace reports whether it has less free space than so many times the limit.
func (f *FileSystem) LacksSpace(times int64) bool {
	limit := max(MinFullBytes, min(FullBytes, f.Bytes/FullShare))
	return f.Bytes > 0 && f.FreeBytes < times*limit
}

// LacksInodes reports whether it has fewer free inodes than so many times the limit.
func (f *FileSystem) LacksInodes(times int64) bool {
	limit := max(MinFullInodes, min(FullInodes, f.Inodes/FullShare))
	return f.Inodes > 0 && f.FreeInodes < times*limit
}

// String returns the file system's state in words.
func (f *FileSystem) String() string {
	what := fmt.Sprintf("%s of %s free", SizeText(f.FreeBytes), SizeText(f.Bytes))
	switch {
	case f.Lost:
		what = "what the runtime has open is not there any more: unmounted, hidden by a mount, moved or removed"
	case f.Option == "emergency_ro":
		what = "read-only since an error of the file system (emergency_ro)"
	case f.Option == "shutdown":
		what = "shut down by the kernel after an error (shutdown): every access fails"
	case f.ReadOnly:
		what = "read-only"
	case f.LacksInodes(StorageStill) && !f.LacksSpace(StorageStill):
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

// SizeText prints a number of bytes with its binary unit.
func SizeText(n int64) string {
	switch {
	case n < 1<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	case n < 10<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
