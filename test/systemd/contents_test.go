//go:build e2e

package systemd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plegd/plegd/test/lab"
)

// epoch is the time that everything in the packages of this test is to bear,
// 2023-11-14 22:13 UTC.
const epoch = "1700000000"

// TestPackageContents packs two small files in place of the binaries and checks
// what is in the packages.
func TestPackageContents(t *testing.T) {
	t.Parallel()
	lab.RequirePrograms(t, "dpkg-deb", "rpmbuild", "rpm")
	dir := t.TempDir()
	run := func(program string, args ...string) (string, error) {
		cmd := exec.Command(program, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "VERSION=0.2.0-7-gabc1234", "SOURCE_DATE_EPOCH="+epoch, "GO="+filepath.Join(dir, "go"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%s: %w\n%s", program, err, out)
		}
		return string(out), nil
	}
	// In place of Go: a program that writes the documents it is asked for.
	fakeGo := "#!/bin/sh\nset -e\nfor d; do :; done\nmkdir -p $d/man8 $d/completions\n" +
		"for p in plegd plegd-run; do echo page | gzip -n >$d/man8/$p.8.gz; done\nfor s in bash zsh fish; do echo $s >$d/completions/$s; done\n"
	for path, text := range map[string]string{
		"go": fakeGo, "build/linux-amd64/plegd": "amd64\n", "build/linux-arm64/plegd": "arm64\n",
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"deploy", "LICENSE", "README.md", "CHANGELOG.md"} {
		if out, err := exec.Command("cp", "-r", "../../"+name, dir).CombinedOutput(); err != nil {
			t.Fatalf("copy %s: %v\n%s", name, err, out)
		}
	}
	if _, err := run("bash", "deploy/packages/build.sh"); err != nil {
		t.Fatal(err)
	}
	packages, err := filepath.Glob(filepath.Join(dir, "dist/*"))
	if err != nil || len(packages) != 4 {
		t.Fatalf("there are %d packages, want 4: %q %v", len(packages), packages, err)
	}
	for _, p := range packages {
		check := checkDeb
		if strings.HasSuffix(p, ".rpm") {
			check = checkRPM
		}
		if err := check(p, run); err != nil {
			t.Errorf("%s: %v", filepath.Base(p), err)
		}
	}
}

// shared are the files that both packages have.
var sharedFiles = []string{
	"/usr/bin/plegd", "/etc/default/plegd",
	"/usr/lib/systemd/system/plegd.service", "/usr/lib/systemd/system/plegd.socket",
	"/usr/share/man/man8/plegd.8.gz", "/usr/share/man/man8/plegd-run.8.gz",
	"/usr/share/bash-completion/completions/plegd", "/usr/share/fish/vendor_completions.d/plegd.fish",
	"/usr/share/plegd/plegd.rules.yml", "/usr/share/plegd/node-problem-detector.json",
}

type runner func(program string, args ...string) (string, error)

func checkDeb(path string, run runner) error {
	arch := strings.TrimSuffix(path[strings.LastIndex(path, "_")+1:], ".deb")
	fields, err := run("dpkg-deb", "--show", "--showformat=${Version} ${Architecture}", path)
	if err != nil {
		return err
	}
	if want := "0.2.0+7.gabc1234-1 " + arch; fields != want {
		return fmt.Errorf("seven commits after 0.2.0 makes %s, want %s", fields, want)
	}
	list, err := run("dpkg-deb", "--contents", path)
	if err != nil {
		return err
	}
	have := map[string]bool{}
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) != 6 || f[1] != "root/root" || f[3] != "2023-11-14" || f[4] != "22:13" {
			return fmt.Errorf("not root's, or not of the commit's time: %s", line)
		}
		have[strings.TrimPrefix(f[5], ".")] = true
	}
	for _, want := range append([]string{"/usr/share/doc/plegd/copyright", "/usr/share/doc/plegd/changelog.gz", "/usr/share/zsh/vendor-completions/_plegd"}, sharedFiles...) {
		if !have[want] {
			return fmt.Errorf("there is no %s", want)
		}
	}
	program, err := run("sh", "-c", "dpkg-deb --fsys-tarfile "+path+" | tar -xO ./usr/bin/plegd ./usr/share/doc/plegd/copyright")
	if err != nil {
		return err
	}
	if !strings.HasPrefix(program, arch+"\n") {
		return fmt.Errorf("its program is not %s's", arch)
	}
	if !strings.Contains(program, "License: Apache-2.0\n") {
		return fmt.Errorf("its copyright does not name the license")
	}
	sums, err := run("dpkg-deb", "--info", path, "md5sums")
	if err != nil {
		return err
	}
	if !strings.Contains(sums, "  usr/bin/plegd\n") {
		return fmt.Errorf("its md5sums lack usr/bin/plegd")
	}
	return nil
}

func checkRPM(path string, run runner) error {
	list, err := run("rpm", "-qp", "--dbpath", filepath.Dir(path)+"/none", "--qf", "%{VERSION} %{BUILDTIME}\n[%{FILENAMES} %{FILEUSERNAME}\n]", path)
	if err != nil {
		return err
	}
	head, rest, _ := strings.Cut(list, "\n")
	if want := "0.2.0+7.gabc1234 " + epoch; head != want {
		return fmt.Errorf("seven commits after 0.2.0 makes %s, want %s", head, want)
	}
	for _, want := range append([]string{"/usr/share/licenses/plegd/LICENSE", "/usr/share/zsh/site-functions/_plegd"}, sharedFiles...) {
		if !strings.Contains(rest, want+" root\n") {
			return fmt.Errorf("there is no %s of root's", want)
		}
	}
	return nil
}
