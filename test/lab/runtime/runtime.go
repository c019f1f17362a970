//go:build e2e

package runtime

import (
	"os"
	"os/exec"
	"strings"
)

// runtimeEnv names the runtime that NewContainerd starts: containerd, crio or
// cri-dockerd; or it is "simulated", for what needs none. Unset: containerd.
const runtimeEnv = "PLEGD_E2E_RUNTIME"

// The values of runtimeEnv.
const (
	runtimeCRIO   = "crio"
	runtimeDocker = "cri-dockerd"
	runtimeNone   = "simulated"
)

// Given reports whether the environment names a runtime.
func Given() bool { return os.Getenv(runtimeEnv) != "" }

// StandInsOnly reports whether only what needs no real runtime is to be run.
func StandInsOnly() bool { return os.Getenv(runtimeEnv) == runtimeNone }

// Column is what tables call the runtime under test: "containerd 1.6", "CRI-O", "cri-dockerd".
func Column() string {
	switch os.Getenv(runtimeEnv) {
	case runtimeCRIO:
		return "CRI-O"
	case runtimeDocker:
		return "cri-dockerd"
	}
	minor := os.Getenv(versionEnv)
	if minor == "" {
		minor = "of this machine"
		for known := range minorVersions {
			if machineHas(known) {
				minor = known
			}
		}
	}
	return "containerd " + minor
}

// Version is the version of the runtime under test, as its program says.
func Version() string {
	program := "containerd"
	switch os.Getenv(runtimeEnv) {
	case runtimeCRIO:
		program = os.Getenv(crioProgramEnv)
	case runtimeDocker:
		program = os.Getenv(criDockerdProgramEnv)
	default:
		if version := minorVersions[os.Getenv(versionEnv)]; version != "" && (version != Containerd16 || !machineHas("1.6")) {
			return strings.TrimPrefix(firstLine(otherContainerd(version), "--version"), "containerd github.com/containerd/containerd/v2 ")
		}
	}
	return firstLine(program, "--version")
}

// otherContainerd is the program of a version that has been had.
func otherContainerd(version string) string {
	otherVersions.Lock()
	defer otherVersions.Unlock()
	return otherVersions.dirs[version] + "/containerd"
}

func firstLine(program string, args ...string) string {
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}

// The programs that no package has: the tests that need them run where these say where they are.
const (
	crioProgramEnv       = "PLEGD_E2E_CRIO"
	criDockerdProgramEnv = "PLEGD_E2E_CRI_DOCKERD"
)
