//go:build e2e

package systemd

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/systemd"
)

// run runs a program of the machine.
func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// rewrite changes a file.
func rewrite(t *testing.T, path string, change func(string) string) {
	t.Helper()
	info, err := os.Stat(path)
	lab.Must(t, err)
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(change(string(b))), info.Mode())
	}
	lab.Must(t, err)
}

// upgrade is a .deb of a later version, whose settings have changed too.
func upgrade(t *testing.T, deb string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	run(t, "dpkg-deb", "-R", deb, root)
	rewrite(t, filepath.Join(root, "DEBIAN/control"), func(s string) string {
		return regexp.MustCompile(`(?m)^Version: .*`).ReplaceAllString(s, "Version: 999.0-1")
	})
	rewrite(t, filepath.Join(root, settings), func(s string) string { return s + "# new in 999.0\n" })
	run(t, "dpkg-deb", "--root-owner-group", "-Znone", "-b", root, root+".deb")
	return root + ".deb"
}

// exists reports whether a file is on the node.
func (n *node) exists(path string) bool {
	_, err := n.TryRun("test", "-e", path)
	return err == nil
}

// keepsSettings checks that an upgrade has kept the change in the settings.
func (n *node) keepsSettings() {
	n.t.Helper()
	if _, err := n.TryRun("grep", "-q", "^PLEGD_LOG_LEVEL=debug$", settings); err != nil {
		n.t.Error("the upgrade has lost the changes in " + settings)
	}
}

// TestDebLife installs, upgrades, removes, installs again and purges the .deb.
func TestDebLife(t *testing.T) {
	t.Parallel()
	deb := lab.PackageFile(t, "plegd_*_ARCH.deb")
	n := bareNode(t, systemd.File{Path: "/root/plegd.deb", From: deb}, systemd.File{Path: "/root/newer.deb", From: upgrade(t, deb)})
	dpkg := func(args ...string) {
		t.Helper()
		// Some small systems leave man pages out of every package. The settings are kept
		// as apt keeps them when nobody answers.
		n.Run(append([]string{"dpkg", "--path-include=/usr/share/*", "--force-confdef", "--force-confold"}, args...)...)
	}
	active := map[string]string{"ActiveState": "active", "UnitFileState": "enabled"}

	dpkg("-i", "/root/plegd.deb")
	n.is("after the installation", active)
	for _, argv := range [][]string{
		{"plegd", "version"},
		{"curl", "-sSf", "http://127.0.0.1:20290/-/healthy"},
		{"ls", "/usr/share/man/man8/plegd-run.8.gz", "/usr/share/plegd/node-problem-detector.json", "/usr/share/doc/plegd/copyright",
			"/usr/share/zsh/vendor-completions/_plegd", "/usr/share/fish/vendor_completions.d/plegd.fish"},
		{"bash", "-c", ". /usr/share/bash-completion/completions/plegd && complete -p plegd"},
		{"dpkg", "--verify", "plegd"},
	} {
		n.Run(argv...)
	}
	if got := n.Property(plegdSocket, "UnitFileState"); got != "disabled" { // it is optional
		t.Errorf("%s is %q after the installation", plegdSocket, got)
	}

	n.Run("sh", "-c", "echo PLEGD_LOG_LEVEL=debug >>"+settings+"; touch "+stateDir+"/kept")
	before := n.Property(plegdUnit, "MainPID")
	dpkg("-i", "/root/newer.deb")
	n.is("after the upgrade", active)
	if now := n.Property(plegdUnit, "MainPID"); now == before {
		t.Errorf("after the upgrade the old plegd still runs, process %s", now)
	}
	n.keepsSettings()
	if !n.exists(settings+".dpkg-dist") || !n.exists(stateDir+"/kept") {
		t.Error("the upgrade has not left the new settings beside the old, or has emptied the state directory")
	}

	// Removed, only the administrator's files are left; installed again, it is back.
	dpkg("-r", "plegd")
	n.is("after the removal", map[string]string{"ActiveState": "inactive"})
	if n.exists("/usr/bin/plegd") || !n.exists(settings) || !n.exists(stateDir+"/kept") {
		t.Error("the removal has left the program, or removed the settings or the state")
	}
	dpkg("-i", "/root/plegd.deb")
	n.is("after the second installation", active)

	n.Run("systemctl", "disable", "--now", plegdUnit)
	dpkg("-i", "/root/newer.deb")
	n.is("after the upgrade of a disabled plegd", map[string]string{"ActiveState": "inactive", "UnitFileState": "disabled"})

	dpkg("-P", "plegd")
	out := n.Run("sh", "-c", "find /etc /usr /var/lib /run -xdev -iname '*plegd*' -not -path '/etc/systemd/system/plegd-e2e*' -not -path '*/dpkg/*'"+
		" -not -path '/run/systemd/*' -not -path '/usr/local/*' -not -path '/usr/src/*'")
	if out = strings.TrimSpace(out); out != "" {
		t.Errorf("after the purge there is left:\n%s", out)
	}
}

// TestRPMLife installs, upgrades and removes the .rpm. Debian's dpkg does not know of it:
// the database is one of the test's own.
func TestRPMLife(t *testing.T) {
	t.Parallel()
	lab.RequirePrograms(t, "rpm", "rpmbuild", "dpkg-deb")
	n := bareNode(t, systemd.File{Path: "/root/plegd.rpm", From: lab.PackageFile(t, "plegd-*.ARCH.rpm")},
		systemd.File{Path: "/root/newer.rpm", From: buildRPM(t, "999")})
	rpm := func(args ...string) {
		t.Helper()
		n.Run(append([]string{"rpm", "--dbpath", "/root/rpmdb", "--nodeps"}, args...)...)
	}
	rpm("-i", "/root/plegd.rpm")
	rpm("-V", "plegd")
	n.Run("systemctl", "enable", "--now", plegdUnit)
	n.Run("plegd", "version")
	before := n.Property(plegdUnit, "MainPID")
	n.Run("sh", "-c", "echo PLEGD_LOG_LEVEL=debug >>"+settings)
	rpm("-U", "/root/newer.rpm")
	if now := n.Property(plegdUnit, "MainPID"); now == before || now == "0" {
		t.Errorf("after the upgrade plegd is process %s, and was %s", now, before)
	}
	n.keepsSettings()
	rpm("-e", "plegd")
	n.await("plegd is gone", func() error {
		if state := n.Property(plegdUnit, "ActiveState"); state != "inactive" || n.exists("/usr/bin/plegd") {
			return errors.New("the unit is " + state + ", or the program is still there")
		}
		return nil
	})
}

// buildRPM packs the content of the .deb, with settings of its own, by the spec file.
func buildRPM(t *testing.T, version string) (path string) {
	t.Helper()
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	run(t, "dpkg-deb", "-x", lab.PackageFile(t, "plegd_*_ARCH.deb"), root)
	for from, to := range map[string]string{
		"usr/share/zsh/vendor-completions": "usr/share/zsh/site-functions",
		"usr/share/doc/plegd/copyright":    "usr/share/licenses/plegd/LICENSE",
		"usr/share/doc/plegd/changelog.gz": "usr/share/doc/plegd/CHANGELOG.gz",
	} {
		err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(root, to)), 0o755), os.Rename(filepath.Join(root, from), filepath.Join(root, to)))
		lab.Must(t, err)
	}
	rewrite(t, filepath.Join(root, settings), func(s string) string { return s + "# of version " + version + "\n" })
	argv := []string{"--quiet", "-bb"}
	for name, value := range map[string]string{
		"plegd_version": version, "plegd_root": root, "_topdir": filepath.Join(dir, "build"), "_rpmdir": dir, "_build_name_fmt": "plegd.rpm",
		"_binary_payload": "w0.gzdio", "__os_install_post": "%{nil}", "debug_package": "%{nil}", "_build_id_links": "none",
	} {
		argv = append(argv, "--define", name+" "+value)
	}
	run(t, "rpmbuild", append(argv, "../../deploy/packages/rpm/plegd.spec")...)
	return filepath.Join(dir, "plegd.rpm")
}
