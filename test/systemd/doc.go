// Package systemd tests the installation: the unit under a real systemd beside a real
// containerd service, the packages, the pod, and the way from the package to the
// runbook. The systemd is the machine's own program, booted in namespaces (test/lab).
package systemd
