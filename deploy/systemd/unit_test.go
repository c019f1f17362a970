package systemd

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/plegd/plegd/test/must"
)

// TestUnitDenies: the unit denies all that its comments say. The rights that it grants, and needs, are
// TestUnitPrivileges'.
func TestUnitDenies(t *testing.T) {
	unit, err := os.ReadFile("plegd.service")
	must.Do(t, err)
	settings := map[string][]string{}
	for line := range strings.Lines(string(unit)) {
		name, value, found := strings.Cut(strings.TrimSpace(line), "=")
		if found {
			settings[name] = append(settings[name], value)
		}
	}
	for name, want := range map[string][]string{
		"CapabilityBoundingSet": {"CAP_SYS_PTRACE CAP_SYSLOG"},
		"AmbientCapabilities":   {""},
		"NoNewPrivileges":       {"yes"},
		"NoExecPaths":           {"/"},
		"ExecPaths":             {"/usr/bin/plegd"},
		"ProtectSystem":         {"strict"},
	} {
		if got := settings[name]; !slices.Equal(got, want) {
			t.Errorf("%s=%q, want %q", name, got, want)
		}
	}
	var denied []string
	for _, filter := range settings["SystemCallFilter"] {
		if calls, isDeny := strings.CutPrefix(filter, "~"); isDeny {
			denied = append(denied, strings.Fields(calls)...)
		}
	}
	for _, call := range []string{"ptrace", "process_vm_readv", "process_vm_writev", "kill", "tkill", "pidfd_send_signal", "@privileged", "syslog"} {
		if !slices.Contains(denied, call) {
			t.Errorf("the unit does not deny %s", call)
		}
	}
}
