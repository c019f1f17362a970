package proc

import (
	"bytes"
	"fmt"
	"strings"
)

// maxMaps bounds the memory map of a process that is read, in bytes: 65,530 lines (vm.max_map_count), most without a path.
const maxMaps = 8 << 20

// Mapping is memory that a process shares with a file and may write to. Shared memory without a name has a file of the
// kernel's.
type Mapping struct {
	Start, End, Offset uint64
	File               string // major:minor:inode, the device in hexadecimal
	Path               string
}

// Contains reports whether an address is in the mapping.
func (m *Mapping) Contains(address uint64) bool { return m.Start <= address && address < m.End }

// SharedMappings reads the shared memory of a process.
func (t *Table) SharedMappings(pid int) ([]Mapping, error) {
	b, err := t.ReadSlow(Path(t.ProcFS, pid, "maps"), maxMaps)
	var out []Mapping
	for line := range bytes.Lines(b) {
		if !bytes.Contains(line, []byte(" rw-s ")) && !bytes.Contains(line, []byte(" rwxs ")) {
			continue
		}
		m, ok := parseMapping(strings.TrimSpace(string(line)))
		if ok {
			out = append(out, m)
		}
	}
	return out, err
}

// parseMapping decodes a line of /proc/PID/maps; ok is false for an invalid one.
//
//	7f8b7bde0000-7f8b7bde1000 rw-s 00000000 00:1a 12    /dev/shm/sem.name
func parseMapping(line string) (m Mapping, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 6 {
		return Mapping{}, false
	}
	_, badRange := fmt.Sscanf(fields[0], "%x-%x", &m.Start, &m.End)
	_, badOffset := fmt.Sscanf(fields[2], "%x", &m.Offset)
	m.File = fields[3] + ":" + fields[4]
	m.Path = WithoutDeleted(line[strings.Index(line, fields[5]):])
	return m, badRange == nil && badOffset == nil
}
