package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestProgram: what shows that a file cannot be started, in the root directory of a process and for its architecture.
func TestProgram(t *testing.T) {
	elf := func(machine byte) string {
		return "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 11) + string(rune(machine)) + "\x00"
	}
	for name, tt := range map[string]struct {
		file, link string
		mode       os.FileMode
		want       string
		isSkipped  bool
	}{
		"a program":            {file: elf(62), mode: 0o755},
		"a script":             {file: "#!/bin/sh\n", mode: 0o755},
		"a link from the root": {file: elf(62), mode: 0o755, link: "/bin/runc"},
		"a link to nothing":    {file: elf(62), mode: 0o755, link: "/bin/crun", want: NotThere, isSkipped: true},
		"not executable":       {file: elf(62), mode: 0o644, want: "is not executable (mode 0644)", isSkipped: true},
		"empty":                {mode: 0o755, want: "is empty"},
		"text":                 {file: "no program", mode: 0o755, want: "begins with neither an ELF header nor #!"},
		"cut short":            {file: "\x7fELF", mode: 0o755, want: "begins with neither an ELF header nor #!"},
		"of another machine":   {file: elf(40), mode: 0o755, want: "is built for another architecture"},
	} {
		t.Run(name, func(t *testing.T) {
			procfs := t.TempDir()
			bin := filepath.Join(procfs, fmt.Sprint(10), "root/bin")
			must.Do(t, os.MkdirAll(bin, 0o755))
			must.Do(t, os.WriteFile(filepath.Join(procfs, "10/exe"), []byte(elf(62)), 0o755))
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
