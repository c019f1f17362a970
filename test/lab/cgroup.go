//go:build e2e

package lab

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// CgroupRoot is where the cgroups are mounted.
const CgroupRoot = "/sys/fs/cgroup"

// cgroupPrefix begins the name of every cgroup that the lab has pods made in;
// the pid of the tests and a number follow.
const cgroupPrefix = "plegd-e2e-"

var cgroupCount atomic.Int64

// NewCgroupName returns a name for a cgroup that no other lab uses.
func NewCgroupName() string {
	return fmt.Sprintf("%s%d-%d", cgroupPrefix, os.Getpid(), cgroupCount.Add(1))
}

// joinCgroup puts a process into a cgroup, as a service manager does: by it plegd
// tells the successor of a runtime that has ended from another lab's runtime. On
// v1 it is in the service manager's hierarchy only, which limits nothing.
func joinCgroup(name string, pid int) error {
	root := filepath.Join(CgroupRoot, "systemd")
	if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
		root = CgroupRoot
	}
	dir := filepath.Join(root, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// RemoveCgroup removes a cgroup and those below it from every hierarchy. The
// processes in it have been killed, and may take a moment to be gone.
func RemoveCgroup(name string) {
	deadline := time.Now().Add(5 * time.Second)
	for !rmdirCgroup(name) && time.Now().Before(deadline) {
		time.Sleep(PollInterval)
	}
}

// sweepCgroups removes what tests that were killed have left.
func sweepCgroups() {
	for _, hierarchy := range CgroupHierarchies() {
		dirs, _ := filepath.Glob(filepath.Join(hierarchy, cgroupPrefix+"*"))
		for _, dir := range dirs {
			owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), cgroupPrefix), "-")
			pid, err := strconv.Atoi(owner)
			if err == nil && syscall.Kill(pid, 0) == syscall.ESRCH {
				rmdirCgroup(filepath.Base(dir))
			}
		}
	}
}

func rmdirCgroup(name string) (gone bool) {
	gone = true
	for _, hierarchy := range CgroupHierarchies() {
		var dirs []string
		_ = filepath.WalkDir(filepath.Join(hierarchy, name), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		// A directory comes before those below it.
		for i := len(dirs) - 1; i >= 0; i-- {
			if err := os.Remove(dirs[i]); err != nil && !os.IsNotExist(err) {
				gone = false
			}
		}
	}
	return gone
}

// CgroupHierarchies lists the mount points: the one of v2, or those of v1.
func CgroupHierarchies() []string {
	if _, err := os.Stat(filepath.Join(CgroupRoot, "cgroup.controllers")); err == nil {
		return []string{CgroupRoot}
	}
	entries, _ := os.ReadDir(CgroupRoot)
	var dirs []string
	for _, e := range entries {
		if e.IsDir() { // some are links to others
			dirs = append(dirs, filepath.Join(CgroupRoot, e.Name()))
		}
	}
	return dirs
}
