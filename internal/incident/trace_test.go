package incident

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSystemCalls traces what reaches the kernel: the file is synced before it
// is renamed, the directory after, and only then the incident is reported.
func TestSystemCalls(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("no strace here (Debian: strace); TestCrash shows the same on a file system of its own")
	}
	if out, err := exec.Command(strace, "-e", "trace=none", os.Args[0], "-test.run=^$").CombinedOutput(); err != nil {
		t.Skipf("strace may not trace here: %v %s", err, out)
	}
	dir := filepath.Join(t.TempDir(), "incidents")
	log := filepath.Join(t.TempDir(), "trace")
	cmd, in, lines := child(t, dir, strace, "-f", "-y", "-s", "120", "-o", log, "-e", "trace=openat,write,fsync,fdatasync,rename,renameat,renameat2,unlinkat")
	var id string
	for n := 0; n < 20 && lines.Scan(); n++ {
		if id == "" {
			id = strings.Fields(lines.Text())[1]
		}
	}
	// Not killed: strace would leave the child behind.
	_ = in.Close()
	for lines.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, id) + ".json"
	var seen []string
	for _, call := range completed(string(b)) {
		for _, step := range []struct{ name, form string }{
			{"write the draft", `write\(\d+<` + regexp.QuoteMeta(file+".tmp") + `>.* = [1-9]`},
			{"sync the draft", `f(data)?sync\(\d+<` + regexp.QuoteMeta(file+".tmp") + `>\) += 0`},
			{"rename it", `rename(at2?)?\(.*` + regexp.QuoteMeta(file+".tmp") + `.*` + regexp.QuoteMeta(file) + `".* = 0`},
			{"sync the directory", `fsync\(\d+<` + regexp.QuoteMeta(dir) + `>\) += 0`},
			{"report", `write\(1<.*"stored ` + id + ` `},
		} {
			if regexp.MustCompile(step.form).MatchString(call) {
				if len(seen) == 0 && step.name != "write the draft" {
					continue // another incident's directory
				}
				seen = append(seen, step.name)
				if step.name != "write the draft" || len(seen) == 1 {
					t.Log(call)
				}
			}
		}
		if len(seen) > 0 && seen[len(seen)-1] == "report" {
			break
		}
	}
	if got, want := strings.Join(seen, ", "), "write the draft, sync the draft, rename it, sync the directory, report"; got != want {
		t.Errorf("the kernel saw\n     %s\nwant %s", got, want)
	}
}

// completed returns the calls of a trace in the order of their end: strace
// breaks in two what another thread interrupts.
func completed(trace string) (calls []string) {
	begun := map[string]string{}
	for line := range strings.Lines(trace) {
		line = strings.TrimSpace(line)
		pid, call, _ := strings.Cut(line, " ")
		call = strings.TrimSpace(call)
		if head, ok := strings.CutSuffix(call, "<unfinished ...>"); ok {
			begun[pid] = strings.TrimSpace(head)
			continue
		}
		if _, tail, ok := strings.Cut(call, " resumed>"); ok && strings.HasPrefix(call, "<...") {
			call = begun[pid] + tail
		}
		calls = append(calls, call)
	}
	return calls
}
