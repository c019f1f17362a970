//go:build e2e

package lab

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Versions of containerd beside the machine's own, as containerd.sh takes them.
const (
	// Containerd17 is the package of the Debian suite that has 1.7.
	Containerd17 = "trixie"
	// Containerd2 is built from source, which takes minutes the first time.
	Containerd2 = "2.4.2"
)

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
	if version == "" {
		RequirePrograms(t, "containerd", "containerd-shim-runc-v2", "ctr")
		return programs{containerd: mustLookPath(t, "containerd"), ctr: mustLookPath(t, "ctr")}
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
		Unable(t, err.Error())
	}
	dir := v.dirs[version]
	return programs{dir: dir, containerd: filepath.Join(dir, "containerd"), ctr: filepath.Join(dir, "ctr")}
}

// getContainerd builds or unpacks a version, unless it is there already.
func getContainerd(version string) (dir string, err error) {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	script := filepath.Join(filepath.Dir(strings.TrimSpace(string(mod))), "test", "lab", "containerd.sh")
	var stderr bytes.Buffer
	get := exec.Command(script, version)
	get.Env, get.Stderr = append(os.Environ(), "GOFLAGS="), &stderr
	out, err := get.Output()
	if err != nil {
		return "", fmt.Errorf("containerd %s cannot be had here: %w: %s", version, err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
