//go:build e2e

package runtime

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/plegd/plegd/test/lab"
)

// versionEnv names the containerd that a test runs where it asks for none: 1.6,
// 1.7, 2.1 or 2.4. Unset: the machine's own.
const versionEnv = "PLEGD_E2E_CONTAINERD"

// Versions of containerd beside the machine's own, as containerd.sh takes them.
const (
	// Containerd16 is the package of the Debian suite that has 1.6.
	Containerd16 = "bookworm"
	// Containerd17 is the package of the Debian suite that has 1.7.
	Containerd17 = "trixie"
	// Containerd21 and Containerd2 are built from source, which takes minutes the first time.
	Containerd21 = "2.1.9"
	Containerd2  = "2.4.2"
)

// minorVersions are the values of versionEnv.
var minorVersions = map[string]string{"1.6": Containerd16, "1.7": Containerd17, "2.1": Containerd21, "2.4": Containerd2}

// containerdVersion returns the version that a test gets: the one that it asks
// for, else that of the environment, else "" for the machine's own.
func containerdVersion(t testing.TB, asked string) string {
	t.Helper()
	minor := os.Getenv(versionEnv)
	if asked != "" || minor == "" {
		return asked
	}
	version, ok := minorVersions[minor]
	if !ok {
		t.Fatalf("%s is %q: want 1.6, 1.7, 2.1 or 2.4", versionEnv, minor)
	}
	return version
}

// usesConfigVersion3 reports whether a version, as containerd.sh takes it, reads the configuration of containerd 2.x.
func usesConfigVersion3(version string) bool { return strings.HasPrefix(version, "2.") }

// programs are those of one containerd. dir is "" where they are in the PATH.
type programs struct {
	dir, containerd, ctr string
}

var otherVersions struct {
	sync.Mutex
	dirs map[string]string
	errs map[string]error
}

// containerdPrograms returns the programs of a version, those of the machine for
// "", and skips the test where there are none.
func containerdPrograms(t testing.TB, version string) programs {
	t.Helper()
	if version == "" || version == Containerd16 && machineHas("1.6") {
		lab.RequirePrograms(t, "containerd", "containerd-shim-runc-v2", "ctr")
		return programs{containerd: lab.LookPath(t, "containerd"), ctr: lab.LookPath(t, "ctr")}
	}
	v := &otherVersions
	v.Lock()
	defer v.Unlock()
	if v.dirs == nil {
		v.dirs, v.errs = map[string]string{}, map[string]error{}
	}
	if v.dirs[version] == "" && v.errs[version] == nil {
		v.dirs[version], v.errs[version] = getContainerd(version)
	}
	if err := v.errs[version]; err != nil {
		lab.Unable(t, err.Error())
	}
	dir := v.dirs[version]
	return programs{dir: dir, containerd: filepath.Join(dir, "containerd"), ctr: filepath.Join(dir, "ctr")}
}

// machineHas reports whether the machine's own containerd is of a minor version.
func machineHas(minor string) bool {
	out, err := exec.Command("containerd", "--version").Output()
	fields := strings.Fields(string(out)) // containerd github.com/containerd/containerd 1.6.20~ds1 ...
	return err == nil && len(fields) > 2 && strings.HasPrefix(strings.TrimPrefix(fields[2], "v"), minor+".")
}

// getContainerd builds or unpacks a version, unless it is there already.
func getContainerd(version string) (dir string, err error) {
	if dir, err = lab.RunScript("containerd.sh", version); err != nil {
		return "", fmt.Errorf("containerd %s cannot be had here: %w", version, err)
	}
	return dir, nil
}
