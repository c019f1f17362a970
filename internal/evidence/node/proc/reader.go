package proc

// Reader reads files of /proc and of cgroups.
type Reader struct{}

// Read returns the content of a file.
func (*Reader) Read(path string) ([]byte, error) { return ReadFile(path) }

// ReadRecord is Read.
func (*Reader) ReadRecord(path string) ([]byte, error) { return ReadFile(path) }

// Stat reads /proc/PID/stat.
func (*Reader) Stat(procfs string, pid int) (Stat, error) { return ReadStat(procfs, pid) }
