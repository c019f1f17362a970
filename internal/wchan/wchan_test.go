package wchan

import (
	"slices"
	"testing"

	"github.com/plegd/plegd/test/check"
)

// TestFirstMatch: no name of a function stands behind another one that matches it with another kind.
func TestFirstMatch(t *testing.T) {
	for _, class := range classes {
		for _, name := range class.prefixes {
			got := Of(name)
			if got.Kind != class.Kind || !slices.Equal(got.FileSystems, class.FileSystems) {
				t.Errorf("%s is %s %v, and stands with %s %v", name, got.Kind, got.FileSystems, class.Kind, class.FileSystems)
			}
		}
	}
}

func TestOf(t *testing.T) {
	for function, want := range map[string]Kind{
		"": Unread, "0": Unread, "futex_do_wait": Idle, "fuse_dev_do_read.constprop.0": Idle, "fuse_wait_on_page_writeback": Storage,
		"mem_cgroup_handle_over_high": Memory, "shrink_node": Reclaim, "kernel_clone": Exec, "some_new_function": Other,
	} {
		check.Equal(t, Of(function).Kind, want, "%q", function)
		check.Equal(t, IsIdle(function), want == Unread || want == Idle, "%q is idle", function)
	}
	check.Equal(t, HasServer("nfs4"), true, "nfs4 has a server")
	check.Equal(t, HasServer("ext4"), false, "ext4 has a server")
}
