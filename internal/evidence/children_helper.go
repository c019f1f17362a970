package evidence

import (
	"path"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/evidence/node/proc"
)

// ociRuntimes are the names of what a shim, a conmon or CRI-O starts for one
// step of a container. It is runc[:2:INIT] and the like that a container begins
// as, which may stay so by right: not meant.
var ociRuntimes = []string{"runc", "crun", "youki"}

func isOCIRuntime(comm string) bool { return slices.Contains(ociRuntimes, comm) }

// cniPlugins are the names of plugins that may be told by nothing else, when
// their arguments cannot be read. The kernel keeps 15 bytes of a name.
var cniPlugins = []string{
	"bridge", "loopback", "ptp", "portmap", "bandwidth", "firewall", "tuning", "ipvlan", "macvlan", "vlan", "vrf", "sbr",
	"host-device", "host-local", "dhcp", "static", "flannel", "calico", "calico-ipam", "multus", "multus-shim",
	"whereabouts", "azure-vnet", "azure-vnet-ipam", "weave-net", "weave-ipam", "kube-ovn", "kuberouter", "antrea",
}

// isHelper reports whether a child of the runtime's or of a shim's is one that is
// to end soon: runc and crun, or a CNI plugin.
func (c *childrenSource) isHelper(s proc.Stat, ofRuntime bool) bool {
	args := c.args.Of(s.ID())
	if isOCIRuntime(s.Comm) {
		// CRI-O has one as a child as long as somebody is in a container.
		return !slices.Contains(args, "exec")
	}
	if !ofRuntime {
		return false
	}
	if strings.Contains(s.Comm, "cni") || slices.Contains(cniPlugins, s.Comm) {
		return true
	}
	// A plugin is started by its path, a script as the argument of its shell.
	for _, arg := range args[:min(len(args), 2)] {
		if path.IsAbs(arg) && strings.Contains(path.Dir(arg), "cni") {
			return true
		}
	}
	return false
}

// plainPath is a path of a socket to compare: /var/run is /run everywhere.
func plainPath(p string) string {
	return strings.Replace(path.Clean(p), "/var/run/", "/run/", 1)
}
