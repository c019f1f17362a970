package proc

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestProgram: what shows that a file cannot be started, in the root directory of a process and for its architecture.
func TestProgram(t *testing.T) {
	elf64 := func(machine byte) string {
		return "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 11) + string(rune(machine)) + "\x00"
	}
	withInterpreter := func(path string) string {
		var b bytes.Buffer
		part := elf.Prog64{Type: uint32(elf.PT_INTERP), Off: 64 + 56, Filesz: uint64(len(path) + 1)}
		header := elf.Header64{Type: uint16(elf.ET_DYN), Machine: 62, Version: 1, Phoff: 64, Phentsize: 56, Phnum: 1, Ehsize: 64, Shentsize: 64}
		copy(header.Ident[:], "\x7fELF\x02\x01\x01")
		must.Do(t, binary.Write(&b, binary.LittleEndian, header))
		must.Do(t, binary.Write(&b, binary.LittleEndian, part))
		return b.String() + path + "\x00"
	}
	const missing = "cannot be started, for its interpreter "
	for name, tt := range map[string]struct {
		file, link string
		mode       os.FileMode
		want       string
		isSkipped  bool
	}{
		"a program":                   {file: elf64(62), mode: 0o755},
		"a script":                    {file: "#! /bin/sh -e\n", mode: 0o755},
		"a script that ends early":    {file: "#!/bin/sh", mode: 0o755},
		"a script without a path":     {file: "#!\n", mode: 0o755},
		"a script of a cut path":      {file: "#!/" + strings.Repeat("x", 300), mode: 0o755},
		"a script without its shell":  {file: "#!/bin/ash -e\n", mode: 0o755, want: missing + "/bin/ash is not there"},
		"a script of a library":       {file: "#!/lib/ld.so\n", mode: 0o755, want: missing + "/lib/ld.so is not executable (mode 0644)"},
		"a script of a broken script": {file: "#!/bin/broken\n", mode: 0o755, want: missing + "/bin/broken " + missing + "/bin/gone is not there"},
		"a script of itself":          {file: "#!/bin/runc\n", mode: 0o755},
		"an ELF interpreter":          {file: withInterpreter("/bin/sh"), mode: 0o755},
		"no ELF interpreter":          {file: withInterpreter("/lib64/ld-linux.so.9"), mode: 0o755, want: missing + "/lib64/ld-linux.so.9 is not there"},
		"a file of a library instead": {file: withInterpreter("/lib/ld.so"), mode: 0o755, want: missing + "/lib/ld.so is not executable (mode 0644)"},
		"a link from the root":        {file: elf64(62), mode: 0o755, link: "/bin/runc"},
		"a link to nothing":           {file: elf64(62), mode: 0o755, link: "/bin/crun", want: NotThere, isSkipped: true},
		"not executable":              {file: elf64(62), mode: 0o644, want: "is not executable (mode 0644)", isSkipped: true},
		"empty":                       {mode: 0o755, want: "is empty"},
		"text":                        {file: "no program", mode: 0o755, want: "begins with neither an ELF header nor #!"},
		"cut short":                   {file: "\x7fELF", mode: 0o755, want: "begins with neither an ELF header nor #!"},
		"of another machine":          {file: elf64(40), mode: 0o755, want: "is built for another architecture"},
	} {
		t.Run(name, func(t *testing.T) {
			procfs := t.TempDir()
			bin := filepath.Join(procfs, fmt.Sprint(10), "root/bin")
			must.Do(t, os.MkdirAll(bin, 0o755))
			must.Do(t, os.WriteFile(filepath.Join(procfs, "10/exe"), []byte(elf64(62)), 0o755))
			evidencetest.WriteTree(t, procfs, map[string]string{"10/root/lib/ld.so": elf64(62)})
			must.Do(t, os.WriteFile(filepath.Join(bin, "sh"), []byte(elf64(62)), 0o755))
			must.Do(t, os.WriteFile(filepath.Join(bin, "broken"), []byte("#!/bin/gone\n"), 0o755))
			must.Do(t, os.WriteFile(filepath.Join(bin, "runc"), []byte(tt.file), tt.mode))
			path := "/bin/runc"
			if tt.link != "" {
				path = "/bin/link"
				must.Do(t, os.Symlink(tt.link, filepath.Join(bin, "link")))
			}
			p, err := NewTable(procfs).Program(t.Context(), 10, path)
			check.Equal(t, err, nil, "the error")
			check.Equal(t, p.Defect, tt.want, "the defect")
			check.Equal(t, p.IsSkipped, tt.isSkipped, "a search of PATH goes on")
		})
	}
	table := NewTable(t.TempDir())
	p, err := table.Program(t.Context(), 10, "/bin/runc")
	check.Equal(t, p.Defect, "", "of a process whose root cannot be read")
	if err == nil {
		t.Error("it is known of a process whose root cannot be read")
	}
}

// TestProgramIsDevice: what hides a program, as /dev/null, is none that a process may have open for writing.
func TestProgramIsDevice(t *testing.T) {
	found, err := NewTable("/proc").Program(t.Context(), os.Getpid(), "/dev/null")
	must.Do(t, err)
	check.Equal(t, found.Defect, "is no regular file", "the defect")
	check.Equal(t, found.Inode, uint64(0), "its inode")
	null, err := os.OpenFile("/dev/null", os.O_WRONLY, 0)
	must.Do(t, err)
	defer func() { _ = null.Close() }()
	pid, _, err := NewTable("/proc").Writer(t.Context(), map[string]Program{"/bin/runc": found})
	if pid != 0 {
		t.Errorf("pid %d writes to it (%v)", pid, err)
	}
}
