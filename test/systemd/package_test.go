//go:build e2e

package systemd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

const (
	settings = "/etc/default/plegd"
	stateDir = "/var/lib/plegd"
)

// bareSystem boots a systemd without plegd, in which packages may start what
// they install, with some files put there. Other tests of this machine may have
// forbidden that by policy-rc.d.
func bareSystem(t *testing.T, files ...lab.SystemdFile) *lab.Systemd {
	t.Helper()
	files = append([]lab.SystemdFile{
		{Path: "/usr/sbin/policy-rc.d", Text: "#!/bin/sh\nexit 0\n", Mode: 0o755},
	}, files...)
	return lab.NewSystemd(t, files...)
}

// repack unpacks a .deb, lets edit change it, and packs it again.
func repack(t *testing.T, deb string, edit func(root string)) string {
	t.Helper()
	lab.RequirePrograms(t, "dpkg-deb")
	root := filepath.Join(t.TempDir(), "root")
	if out, err := exec.Command("dpkg-deb", "-R", deb, root).CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", deb, err, out)
	}
	edit(root)
	repacked := filepath.Join(filepath.Dir(root), "plegd.deb")
	if out, err := exec.Command("dpkg-deb", "--root-owner-group", "-Znone", "-b", root, repacked).CombinedOutput(); err != nil {
		t.Fatalf("pack %s: %v\n%s", deb, err, out)
	}
	return repacked
}

// rewrite changes a file below root.
func rewrite(t *testing.T, path string, change func(string) string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(change(string(b))), info.Mode()); err != nil {
		t.Fatal(err)
	}
}

// newer is a package of a later version, whose default file has changed too.
func newer(t *testing.T, deb string) string {
	t.Helper()
	return repack(t, deb, func(root string) {
		rewrite(t, filepath.Join(root, "DEBIAN/control"), func(s string) string {
			lines := strings.Split(s, "\n")
			for i, line := range lines {
				if strings.HasPrefix(line, "Version: ") {
					lines[i] = "Version: 999.0-1"
				}
			}
			return strings.Join(lines, "\n")
		})
		rewrite(t, filepath.Join(root, settings), func(s string) string { return s + "# new in 999.0\n" })
	})
}

// TestDebLife takes the .deb through its life: install, upgrade, remove, install
// again, purge.
func TestDebLife(t *testing.T) {
	t.Parallel()
	deb := lab.PackageFile(t, "plegd_*_ARCH.deb")
	if err := debLife(t, deb, newer(t, deb)); err != nil {
		t.Fatal(err)
	}
}

// debLife returns the error of the first step of a package's life that fails.
func debLife(t *testing.T, deb, upgrade string) error {
	t.Helper()
	s := bareSystem(t, lab.SystemdFile{Path: "/root/plegd.deb", From: deb}, lab.SystemdFile{Path: "/root/newer.deb", From: upgrade})
	dpkg := func(args ...string) error {
		// Some small systems leave man pages out of every package.
		// What apt does where nobody answers: keep what an administrator has written.
		out, err := s.TryRun(append([]string{"dpkg", "--path-include=/usr/share/*", "--force-confdef", "--force-confold"}, args...)...)
		if err != nil {
			return fmt.Errorf("dpkg %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	exists := func(path string) bool {
		_, err := s.TryRun("test", "-e", path)
		return err == nil
	}
	is := func(property, want string) error {
		if got := s.Property(plegdUnit, property); got != want {
			return fmt.Errorf("%s of the unit is %q, want %q", property, got, want)
		}
		return nil
	}

	// Installed, it runs, and will after the next boot.
	if err := dpkg("-i", "/root/plegd.deb"); err != nil {
		return err
	}
	if err := errors.Join(is("ActiveState", "active"), is("UnitFileState", "enabled")); err != nil {
		return fmt.Errorf("after the installation: %w", err)
	}
	for _, argv := range [][]string{
		{"plegd", "version"},
		{"curl", "-sSf", "http://127.0.0.1:20290/-/healthy"},
		{"test", "-e", "/usr/share/man/man8/plegd-run.8.gz"},
		{"bash", "-c", ". /usr/share/bash-completion/completions/plegd && complete -p plegd"},
		{"dpkg", "--verify", "plegd"},
	} {
		if out, err := s.TryRun(argv...); err != nil {
			return fmt.Errorf("after the installation: %s: %w: %s", strings.Join(argv, " "), err, out)
		}
	}
	// The socket unit is there for those who want it.
	if got := s.Property("plegd.socket", "UnitFileState"); got != "disabled" {
		return fmt.Errorf("plegd.socket is %q after the installation", got)
	}

	// An upgrade keeps what an administrator has written, restarts the service,
	// and keeps what is in the state directory.
	s.Run("sh", "-c", "echo PLEGD_LOG_LEVEL=debug >>"+settings+"; touch "+stateDir+"/kept")
	before := s.Property(plegdUnit, "MainPID")
	if err := dpkg("-i", "/root/newer.deb"); err != nil {
		return err
	}
	if err := is("ActiveState", "active"); err != nil {
		return fmt.Errorf("after the upgrade: %w", err)
	}
	if now := s.Property(plegdUnit, "MainPID"); now == before {
		return fmt.Errorf("after the upgrade the old plegd runs on, process %s", now)
	}
	if _, err := s.TryRun("grep", "-q", "^PLEGD_LOG_LEVEL=debug$", settings); err != nil {
		return errors.New("the upgrade has lost the changes in " + settings)
	}
	if !exists(settings + ".dpkg-dist") {
		return errors.New("the upgrade has not left the new settings beside the old")
	}
	if !exists(stateDir + "/kept") {
		return errors.New("the upgrade has emptied the state directory")
	}

	// Removed, it is gone but for what was written; installed again, it is back.
	if err := dpkg("-r", "plegd"); err != nil {
		return err
	}
	if state := s.Property(plegdUnit, "ActiveState"); state != "inactive" {
		return fmt.Errorf("after the removal the unit is %q", state)
	}
	if exists("/usr/bin/plegd") || !exists(settings) || !exists(stateDir+"/kept") {
		return fmt.Errorf("after the removal: the program is there: %t, the settings: %t, the state: %t; want false, true, true",
			exists("/usr/bin/plegd"), exists(settings), exists(stateDir+"/kept"))
	}
	if err := dpkg("-i", "/root/plegd.deb"); err != nil {
		return err
	}
	if err := errors.Join(is("ActiveState", "active"), is("UnitFileState", "enabled")); err != nil {
		return fmt.Errorf("after the second installation: %w", err)
	}

	// An administrator who has disabled it finds it disabled after an upgrade.
	s.Run("systemctl", "disable", "--now", plegdUnit)
	if err := dpkg("-i", "/root/newer.deb"); err != nil {
		return err
	}
	if err := errors.Join(is("ActiveState", "inactive"), is("UnitFileState", "disabled")); err != nil {
		return fmt.Errorf("after the upgrade of a disabled plegd: %w", err)
	}

	// Purged, it has never been there.
	if err := dpkg("-P", "plegd"); err != nil {
		return err
	}
	out := s.Run("sh", "-c", "find /etc /usr /var/lib /run -xdev -iname '*plegd*' -not -path '/etc/systemd/system/plegd-e2e*' -not -path '*/dpkg/*' -not -path '/run/systemd/*' -not -path '/usr/local/*' -not -path '/usr/src/*'")
	if out = strings.TrimSpace(out); out != "" {
		return fmt.Errorf("after the purge there is left:\n%s", out)
	}
	return nil
}

// TestRPMLife takes the .rpm through its life.
func TestRPMLife(t *testing.T) {
	t.Parallel()
	lab.RequirePrograms(t, "rpm", "rpmbuild", "dpkg-deb")
	spec := readDeploy(t, "packages/rpm/plegd.spec")
	later, err := buildRPM(t, spec, "999")
	if err != nil {
		t.Fatal(err)
	}
	if err := rpmLife(t, lab.PackageFile(t, "plegd-*.ARCH.rpm"), later); err != nil {
		t.Error(err)
	}
}

// buildRPM packs what is in the .deb by a spec file. Each version has settings of
// its own.
func buildRPM(t *testing.T, spec, version string) (path string, err error) {
	t.Helper()
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	if out, err := exec.Command("dpkg-deb", "-x", lab.PackageFile(t, "plegd_*_ARCH.deb"), root).CombinedOutput(); err != nil {
		t.Fatalf("unpack the .deb: %v\n%s", err, out)
	}
	for from, to := range map[string]string{
		"usr/share/zsh/vendor-completions": "usr/share/zsh/site-functions",
		"usr/share/doc/plegd/copyright":    "usr/share/licenses/plegd/LICENSE",
		"usr/share/doc/plegd/changelog.gz": "usr/share/doc/plegd/CHANGELOG.gz",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, to)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(root, from), filepath.Join(root, to)); err != nil {
			t.Fatal(err)
		}
	}
	rewrite(t, filepath.Join(root, settings), func(s string) string { return s + "# of version " + version + "\n" })
	file := filepath.Join(dir, "plegd.spec")
	if err := os.WriteFile(file, []byte(spec), 0o644); err != nil {
		t.Fatal(err)
	}
	argv := []string{"--quiet", "-bb"}
	for name, value := range map[string]string{
		"plegd_version": version, "plegd_root": root, "_topdir": filepath.Join(dir, "build"), "_rpmdir": dir, "_build_name_fmt": "plegd.rpm",
		"_binary_payload": "w0.gzdio", "__os_install_post": "%{nil}", "debug_package": "%{nil}", "_build_id_links": "none",
	} {
		argv = append(argv, "--define", name+" "+value)
	}
	if out, err := exec.Command("rpmbuild", append(argv, file)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("rpmbuild: %w\n%s", err, out)
	}
	return filepath.Join(dir, "plegd.rpm"), nil
}

// rpmLife installs, upgrades and removes a .rpm, and returns the first error.
// Debian's dpkg does not know of it: the database is one of the test's own.
func rpmLife(t *testing.T, pkg, upgrade string) error {
	t.Helper()
	s := bareSystem(t, lab.SystemdFile{Path: "/root/plegd.rpm", From: pkg}, lab.SystemdFile{Path: "/root/newer.rpm", From: upgrade})
	rpm := func(args ...string) error {
		out, err := s.TryRun(append([]string{"rpm", "--dbpath", "/root/rpmdb", "--nodeps"}, args...)...)
		if err != nil {
			return fmt.Errorf("rpm %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	if err := rpm("-i", "/root/plegd.rpm"); err != nil {
		return err
	}
	if err := rpm("-V", "plegd"); err != nil {
		return fmt.Errorf("the installed files differ from the packed ones: %w", err)
	}
	s.Run("systemctl", "enable", "--now", plegdUnit)
	s.Run("plegd", "version")
	before := s.Property(plegdUnit, "MainPID")
	s.Run("sh", "-c", "echo PLEGD_LOG_LEVEL=debug >>"+settings)
	if err := rpm("-U", "/root/newer.rpm"); err != nil {
		return err
	}
	if now := s.Property(plegdUnit, "MainPID"); now == before || now == "0" {
		return fmt.Errorf("after the upgrade plegd is process %s, and was %s", now, before)
	}
	if _, err := s.TryRun("grep", "-q", "^PLEGD_LOG_LEVEL=debug$", settings); err != nil {
		return errors.New("the upgrade has lost the changes in " + settings)
	}
	if err := rpm("-e", "plegd"); err != nil {
		return err
	}
	return within(10*time.Second, func() error {
		if state := s.Property(plegdUnit, "ActiveState"); state != "inactive" {
			return fmt.Errorf("the unit is %q", state)
		}
		if _, err := s.TryRun("test", "-e", "/usr/bin/plegd"); err == nil {
			return errors.New("/usr/bin/plegd is still there")
		}
		return nil
	})
}
